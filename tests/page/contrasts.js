() => {
  // Of each text that is shown: its beginning, and its least contrast with what may be behind it.
  const channels = (colour) => {
    const found = colour.match(/[\d.]+/g).map(Number);
    const scale = colour.startsWith("color(") ? 255 : 1;
    return [found[0] * scale, found[1] * scale, found[2] * scale, found[3] ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const linear = (channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const light = (rgb) => {
    const [red, green, blue] = rgb.map(linear);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  // A gradient may have any of its colours behind a text.
  const behind = (element) => {
    if (!element) return [[255, 255, 255]];
    const style = getComputedStyle(element);
    const own = channels(style.backgroundColor);
    const image = (style.backgroundImage.match(/(rgba?|color)\([^)]*\)/g) ?? []).map(channels);
    const bases = own[3] === 1 ? [own] : behind(element.parentElement).map((base) => over(own, base));
    return [...bases, ...image.flatMap((colour) => bases.map((base) => over(colour, base)))];
  };
  const dialog = document.querySelector("dialog[open]");
  const counts = (text, element) =>
    text && !element.closest("script, style, noscript, .said") && (!dialog || dialog.contains(element))
    && element.checkVisibility() && element.getClientRects().length;
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
    if (!counts(text, element)) continue;
    const style = getComputedStyle(element);
    const colour = channels(element instanceof SVGElement ? style.fill : style.color);
    const least = Math.min(...behind(element).map((base) => contrast(over(colour, base), base)));
    found.push([text.slice(0, 40), least]);
  }
  return found;
}

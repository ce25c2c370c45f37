"use strict";
(() => {
  const { cells } = JSON.parse(document.getElementById("data").textContent);
  const matrix = document.getElementById("matrix");
  const dialog = document.getElementById("dialog");
  const tip = document.getElementById("tip");
  const slot = (name) => dialog.querySelector(`[data-slot="${name}"]`);
  const part = (name) => dialog.querySelector(`[data-part="${name}"]`);
  const grid = [...matrix.querySelectorAll("tbody tr:not(.group)")].map((row) => [...row.querySelectorAll("th a, td button")]);
  const heads = [...matrix.querySelectorAll("thead th")];
  const told = (button) => cells[button.dataset.contract][Number(button.dataset.column)];
  const number = (value) => (value === null ? "" : value.toLocaleString("en"));

  const made = (name, attributes = {}, ...content) => {
    const svg = ["g", "rect", "path", "title"].includes(name);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content);
    return element;
  };

  /* Light and dark: the system's choice, until the reader makes another. */
  const theme = document.getElementById("theme");
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = dark() ? "Light colours" : "Dark colours"; };
  const remembered = (value) => {
    try { return value ? localStorage.setItem("theme", value) : localStorage.getItem("theme"); } catch { return null; }
  };
  if (["light", "dark"].includes(remembered())) document.documentElement.dataset.theme = remembered();
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    remembered(document.documentElement.dataset.theme);
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();

  /* What hovering or focusing tells. */
  let target = null;
  const settle = () => {
    if (!target) return;
    const at = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left + at.width / 2 - own.width / 2, innerWidth - own.width - 8));
    const below = at.bottom + 8 + own.height < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? at.bottom + 8 : Math.max(8, at.top - own.height - 8)}px`;
  };
  const tell = (text, element) => {
    target = element;
    tip.textContent = text;
    tip.hidden = false;
    settle();
  };
  const hush = () => {
    target?.removeAttribute("aria-describedby");
    target = null;
    tip.hidden = true;
    heads.forEach((head) => head.classList.remove("here"));
  };
  const summary = (cell) => {
    const message = cell.worst ? cell.worst.case.message : cell.reason;
    return [`${cell.name}: ${cell.said}`, cell.counts, message].filter(Boolean).join("\n");
  };
  const show = (event) => {
    const button = event.target.closest("#matrix td button");
    const other = event.target.closest("[data-tip], [data-statement]");
    hush();
    if (dialog.open) return;
    if (button) {
      tell(summary(told(button)), button);
      heads[button.dataset.column].classList.add("here");
      button.setAttribute("aria-describedby", "tip");
    } else if (other) {
      const statement = other.dataset.statement;
      tell(statement ? document.querySelector(`#contract-${CSS.escape(statement)} dd`).textContent : other.dataset.tip, other);
    }
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) show(event); });
  document.addEventListener("focusout", hush);
  document.addEventListener("scroll", settle, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hush(); });

  /* What scrolls can be scrolled by the keyboard; what does not is no stop for it. */
  const stops = new ResizeObserver((entries) => entries.forEach(({ target: box }) => {
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  }));
  document.querySelectorAll(".box[role]").forEach((box) => stops.observe(box));

  /* One cell is in the order of tabs; the arrow keys choose which. Names of rows are cells too. */
  let current = grid[0]?.[1];
  const choose = (button) => {
    if (current) current.tabIndex = -1;
    current = button;
    current.tabIndex = 0;
  };
  const place = (button) => {
    const row = grid.findIndex((buttons) => buttons.includes(button));
    return [row, grid[row].indexOf(button)];
  };
  grid.forEach(([name]) => { name.tabIndex = -1; });
  if (current) choose(current);
  matrix.addEventListener("keydown", (event) => {
    if (!event.target.matches("th a, td button") || event.altKey || event.metaKey) return;
    const [row, column] = place(event.target);
    const lastRow = grid.length - 1, lastColumn = grid[row].length - 1;
    const to = {
      ArrowUp: [Math.max(0, row - 1), column],
      ArrowDown: [Math.min(lastRow, row + 1), column],
      ArrowLeft: [row, Math.max(0, column - 1)],
      ArrowRight: [row, Math.min(lastColumn, column + 1)],
      Home: [event.ctrlKey ? 0 : row, 0],
      End: [event.ctrlKey ? lastRow : row, lastColumn],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    choose(grid[to[0]][to[1]]);
    current.focus({ preventScroll: true });
    current.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  });

  /* The layers of a deployment, by compress ratio and stage; the rank in question stands out. */
  const strip = (worst) => {
    const ratios = worst.case.deployment.model.compress_ratios.slice(0, worst.case.deployment.model.num_hidden_layers);
    const kinds = [...new Set(ratios)].sort((one, other) => one - other);
    const colour = (ratio) => `ratio-${ratio === 0 ? 0 : 1 + (kinds.filter(Boolean).indexOf(ratio) % 3)}`;
    const stages = [...worst.stages.matchAll(/\[(\d+),(\d+)\)/g)].map((found) => [Number(found[1]), Number(found[2])]);
    const svg = part("strip").querySelector("svg");
    svg.setAttribute("viewBox", `0 0 ${ratios.length} 30`);
    svg.setAttribute("aria-label", `${ratios.length} layers in ${stages.length} stages: ${worst.stages}`);
    svg.replaceChildren();
    stages.forEach(([start, end], rank) => {
      const own = worst.rank === null || worst.rank === rank;
      const gap = stages.length > 1 ? Math.min(0.3, ratios.length / 400) : 0;
      const layers = ratios.slice(start, end).map((ratio, index) =>
        made("rect", { x: start + index, y: 0, width: start + index === end - 1 ? 1 - gap : 1, height: 23, class: colour(ratio) }));
      svg.append(made("g", own ? {} : { class: "elsewhere" }, ...layers));
      if (worst.rank === rank && stages.length > 1) svg.append(made("rect", { x: start, y: 26, width: end - start - gap, height: 4, class: "rank" }));
    });
    const legend = kinds.map((ratio) => made("span", {}, made("i", { class: colour(ratio) }), ratio ? `ratio ${ratio}` : "not compressed"));
    const stage = stages.length > 1 && stages[worst.rank];
    const where = stage ? [made("span", {}, `rank ${worst.rank} of ${stages.length}: layers ${stage[0]} to ${stage[1] - 1}`)] : [];
    slot("layers").replaceChildren(...legend, ...where);
    part("strip").hidden = stages.length === 0;
  };

  const table = (worst) => {
    part("rows").hidden = !worst.rows;
    part("no-rows").hidden = Boolean(worst.rows);
    if (!worst.rows) return;
    const parts = worst.rows.filter((row) => row.component !== "total");
    const most = Math.max(1, ...parts.map((row) => Math.max(row.charged ?? 0, row.allocated)));
    slot("table").textContent = `Rank ${worst.rank ?? 0}: charged and allocated, at the tokens that it gets`;
    slot("rows").replaceChildren(...worst.rows.map((row) => {
      const total = row.component === "total";
      const bytes = (value) => {
        const cell = made("td", { class: "bar" }, number(value));
        cell.style.setProperty("--share", total ? 0 : (value ?? 0) / most);
        return cell;
      };
      return made("tr", total ? { class: "total" } : {},
        made("th", { scope: "row" }, row.component),
        ...[row.layers, row.buffers, row.rows].map((value) => made("td", {}, number(value))),
        bytes(row.charged), bytes(row.allocated),
        made("td", {}, made("span", { "data-heat": row.heat }, row.shown)));
    }));
  };

  let address = null;
  const again = (worst) => {
    if (address) URL.revokeObjectURL(address);
    const text = `${JSON.stringify(worst.case, null, 1)}\n`;
    address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    const link = slot("download");
    link.href = address;
    link.download = worst.file;
    link.textContent = `Download ${worst.file}`;
    slot("replay").textContent = worst.replay;
    slot("observe").textContent = worst.observe;
    slot("unnamed").textContent = worst.unnamed && `PATH is that of ${worst.unnamed} on your machine.`;
    slot("unnamed").hidden = !worst.unnamed;
    slot("deployment").textContent = JSON.stringify(worst.case.deployment);
  };

  const fill = (button) => {
    const cell = told(button), { counts, worst } = cell;
    const [row, column] = place(button);
    for (const name of ["name", "said"]) slot(name).textContent = cell[name];
    slot("said").dataset.heat = cell.heat;
    slot("message").textContent = worst ? worst.case.message : "";
    slot("statement").replaceChildren(...document.querySelector(`#contract-${CSS.escape(cell.contract)} dd`).cloneNode(true).childNodes);
    slot("counts").textContent = [counts, worst?.bytes].filter(Boolean).join(" ");
    slot("reason").textContent = cell.reason ?? "";
    for (const name of ["message", "counts", "reason"]) slot(name).hidden = !slot(name).textContent;
    part("worst").hidden = !worst;
    for (const [name, step] of [["before", -1], ["after", 1]]) {
      const next = grid[row][column + step];
      const is = next?.matches("button");
      slot(name).textContent = is ? told(next).subject : "";
      slot(name).parentElement.hidden = !is;
    }
    slot("status").textContent = "";
    if (!worst) return;
    strip(worst);
    table(worst);
    again(worst);
    slot("words").replaceChildren(...worst.words.flatMap(([term, text]) => [made("dt", {}, term), made("dd", {}, text)]));
  };

  matrix.addEventListener("click", (event) => {
    const button = event.target.closest("td button");
    if (!button) return;
    choose(button);
    hush();
    fill(button);
    dialog.showModal();
    dialog.querySelector("[data-close]").focus();
    dialog.scrollTop = 0;
  });
  dialog.addEventListener("close", () => {
    current.focus();
    if (address) URL.revokeObjectURL(address);
    address = null;
  });
  dialog.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (event.target === dialog || button?.hasAttribute("data-close")) dialog.close();
    if (button?.dataset.move) {
      const [row, column] = place(current);
      choose(grid[row][column + Number(button.dataset.move)]);
      fill(current);
      if (button.hidden) dialog.querySelector("[data-close]").focus();
      slot("status").textContent = current.getAttribute("aria-label");
    }
    if (button?.dataset.copy) await copy(slot(button.dataset.copy));
  });
  const copy = async (source) => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      slot("status").textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(source);
      slot("status").textContent = "Selected; copy it with the keyboard.";
    }
  };
})();

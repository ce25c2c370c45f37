"""The page of a matrix in a real browser: it opens, cells open, it can be read.

The browser is Debian's chromium. Where there is none these tests are skipped, unless
CONTRACTS_BROWSER is set, as CI sets it: then they fail.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts import law
from contracts.hunt.case import load
from contracts.report.page import page as page_of
from contracts.subject.releases import RELEASES
from tests.page import documents
from tests.page.documents import HOSTILE, LABELS

REQUIRED = bool(os.environ.get("CONTRACTS_BROWSER"))
CHROMIUM = shutil.which("chromium")
if not REQUIRED:
    pytest.importorskip("playwright.sync_api", reason="no playwright here: tox -e page has it")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium", allow_module_level=True)

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright  # noqa: E402

JSON = Any

#: Schemes that a reader's system may ask for, and what the page's own colour then is.
SCHEMES = ("light", "dark")
WIDE, NARROW = 1360, 360
FIRST = f"stage-partition on {LABELS[0]}: held"
RANK_SUM = f"rank-sum on {LABELS[0]}: violated, factor 32"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    assert CHROMIUM is not None, "CONTRACTS_BROWSER is set, and there is no chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "matrix.html"
    file.write_text(page_of(documents.document()), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complains about, and what it is asked from a network."""
    return []


@pytest.fixture
def opened(chromium: Browser, address: str, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Open the page. A complaint fails the test."""
    contexts = []

    def open_page(width: int = WIDE, **settings: Any) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": 860}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend(foreign(request.url)))
        page.goto(address)
        return page

    def foreign(url: str) -> list[str]:
        return [] if url.startswith(("file:", "data:", "blob:")) else [url]

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def cell(page: Page, name: str) -> Locator:
    return page.get_by_role("gridcell").get_by_role("button", name=name, exact=True)


# -- it opens --------------------------------------------------------------------------------------


def test_it_opens(opened: Callable[..., Page]) -> None:
    """Red when the page does not show the heat map and the plots, or the browser complains."""
    page = opened()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    grid = page.get_by_role("grid", name="Contracts by release")
    expect(grid.get_by_role("gridcell").get_by_role("button")).to_have_count(
        len(law.ALL) * len(LABELS)
    )
    expect(grid.get_by_role("columnheader")).to_have_text(list(LABELS))
    expect(page.get_by_role("img", name="full tokens by release")).to_have_count(10)
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_without_scripts(opened: Callable[..., Page]) -> None:
    """Red when a browser without JavaScript shows nothing."""
    page = opened(java_script_enabled=False)
    expect(cell(page, RANK_SUM)).to_be_visible()
    expect(page.get_by_role("img", name="full tokens by release").first).to_be_visible()


def test_the_policy_works(opened: Callable[..., Page], complaints: list[str]) -> None:
    """Red when the browser would let the page fetch something."""
    page = opened()
    with page.expect_console_message(lambda said: "Content Security Policy" in said.text):
        page.evaluate("() => { new Image().src = 'https://nowhere.invalid/x.png'; }")
    complaints.clear()


# -- cells open ------------------------------------------------------------------------------------


def test_a_cell_opens_by_mouse(opened: Callable[..., Page]) -> None:
    """Red when a click does not show the counterexample, its table and its replay line."""
    page = opened()
    cell(page, RANK_SUM).click()
    dialog = page.get_by_role("dialog", name=f"rank-sum on {LABELS[0]}")
    expect(dialog).to_be_visible()
    for said in (
        f"rank-sum: rank 1 of 2: {HOSTILE} = 2, expected 1 (allocated)",
        law.get("rank-sum").statement.replace("`", ""),
        "35 deployments judged; 20 of them violate it.",
        "1.89 MiB (1,984,256 bytes) disagree on rank 1.",
        "rank 1 of 2: layers 3 to 5",
        "flash-pp2",
    ):
        expect(dialog).to_contain_text(" ".join(said.split()))
    rows = dialog.get_by_role("row")
    expect(rows).to_have_count(len(documents.ROWS) + 1)
    expect(rows.nth(1)).to_have_text(
        re.compile(r"c4_kv\s*2\s*3\s*2,048\s*2,048,000\s*1,024,000\s*×2")
    )
    expect(dialog.get_by_text(re.compile(r"^python -m contracts replay rank-sum-"))).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    expect(cell(page, RANK_SUM)).to_be_focused()


#: Opens every cell; of each what it is called and which parts of the dialog are then seen.
OPENED = """() => [...document.querySelectorAll("#matrix td button")].map((button) => {
  button.click();
  const dialog = document.querySelector("dialog[open]");
  const text = (name) => dialog.querySelector(`[data-slot="${name}"]`).textContent;
  const seen = (part) => dialog.querySelector(part).checkVisibility();
  const told = {
    called: button.getAttribute("aria-label"),
    named: `${text("name")}: ${text("said")}`,
    worst: seen('[data-part="worst"]'),
    message: seen('[data-slot="message"]') && text("message").split(":")[0],
    rows: seen('[data-part="rows"]'),
    reason: seen('[data-slot="reason"]'),
  };
  dialog.close();
  return told;
})"""


def test_every_cell_opens(opened: Callable[..., Page]) -> None:
    """Red when one cell cannot be opened, or the dialog keeps something of the one before."""
    told = opened().evaluate(OPENED)
    assert len(told) == len(law.ALL) * len(LABELS)
    for one in told:
        contract, _, said = one["called"].partition(" on ")
        violated = ": violated" in said
        assert one["named"] == one["called"]
        assert one["worst"] == violated
        assert one["message"] == (contract if violated else False)
        assert one["rows"] == (violated and contract != "refusal")
        assert one["reason"] == said.endswith((": not judged", ": not tried"))


def test_a_cell_opens_by_keyboard(opened: Callable[..., Page]) -> None:
    """Red when the keyboard alone does not reach, open and leave a cell."""
    page = opened()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Dark colours")).to_be_focused()
    page.keyboard.press("Tab")
    expect(cell(page, FIRST)).to_be_focused()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    expect(cell(page, RANK_SUM)).to_be_focused()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(cell(page, RANK_SUM)).to_be_focused()


#: What in the matrix is in the order of tabs.
STOPS = """() => [...document.querySelectorAll("#matrix a, #matrix button")]
    .filter((one) => one.tabIndex >= 0)
    .map((one) => one.getAttribute("aria-label") ?? one.textContent)"""


def test_keys_in_the_grid(opened: Callable[..., Page]) -> None:
    """Red when a key leads elsewhere, or off the grid, or more than one cell is in the order of
    tabs."""
    page = opened()
    cell(page, FIRST).focus()
    last = len(LABELS) - 1
    for key, row, column in (
        ("ArrowUp", 0, 0),
        ("ArrowRight", 0, 1),
        ("ArrowDown", 1, 1),
        ("ArrowLeft", 1, 0),
        ("End", 1, last),
        ("ArrowRight", 1, last),
        ("Control+End", len(law.ALL) - 1, last),
        ("ArrowDown", len(law.ALL) - 1, last),
    ):
        page.keyboard.press(key)
        name = f"{list(law.ALL)[row]} on {LABELS[column]}: "
        focused = str(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        assert focused.startswith(name), key
        assert page.evaluate(STOPS) == [focused]
    page.keyboard.press("Control+Home")
    expect(page.get_by_role("link", name="stage-partition", exact=True)).to_be_focused()
    assert page.evaluate(STOPS) == ["stage-partition"]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(cell(page, FIRST)).to_be_focused()


def test_from_subject_to_subject(opened: Callable[..., Page]) -> None:
    """Red when the dialog does not go on to the next subject, or focus returns to another cell."""
    page = opened()
    cell(page, RANK_SUM).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Before")).to_be_hidden()
    dialog.get_by_role("button", name=f"After: {LABELS[1]}").click()
    expect(dialog.get_by_role("heading", level=2)).to_have_text(f"rank-sum on {LABELS[1]}")
    expect(dialog.get_by_role("status")).to_have_text(f"rank-sum on {LABELS[1]}: held")
    page.keyboard.press("Escape")
    expect(cell(page, f"rank-sum on {LABELS[1]}: held")).to_be_focused()


def test_the_case_is_downloaded(opened: Callable[..., Page], tmp_path: Path) -> None:
    """Red when the file that is downloaded is no failing case, or not the one that is shown."""
    page = opened()
    cell(page, RANK_SUM).click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download rank-sum-").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    case = load(file)
    assert case.deployment == documents.deployment("rank-sum")
    assert (case.contract, case.subject, case.baseline) == ("rank-sum", LABELS[0], None)
    assert page.get_by_text(f"replay {file.name}").is_visible()


def test_lines_can_be_copied(opened: Callable[..., Page]) -> None:
    """Red when a copy button copies nothing, or something else than what is beside it."""
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    cell(page, RANK_SUM).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The deployment as JSON").click()
    for name, starts in (
        ("replay line", "python -m contracts replay rank-sum-"),
        ("observe line", "python -m contracts observe --sglang 0.5.12 --deployment rank-sum-"),
        ("deployment", "{"),
    ):
        dialog.get_by_role("button", name=f"Copy the {name}").click()
        expect(dialog.get_by_role("status")).to_have_text("Copied.")
        copied = str(page.evaluate("navigator.clipboard.readText()"))
        assert copied.startswith(starts)
    assert json.loads(copied) == documents.deployment("rank-sum").to_json()


# -- what hovering and focusing tell ---------------------------------------------------------------


def test_a_cell_tells_its_message(opened: Callable[..., Page]) -> None:
    """Red when hovering or focusing a cell does not tell what is wrong, or Escape does not
    end it."""
    page = opened()
    tip = page.get_by_role("tooltip")
    cell(page, RANK_SUM).hover()
    expect(tip).to_contain_text("rank-sum: rank 1 of 2")
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    cell(page, FIRST).focus()
    page.keyboard.press("ArrowDown")
    expect(tip).to_contain_text(f"stage-slice on {LABELS[0]}: held")
    expect(page.locator(":focus")).to_have_attribute("aria-describedby", "tip")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_plot_tells_its_numbers(opened: Callable[..., Page]) -> None:
    """Red when hovering a plot does not tell the capacities, or why there is none."""
    page = opened()
    page.locator("svg.plot").first.locator(".hit").first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("0.5.12, 80 GiB")
    page.locator("svg.plot").last.locator(".hit").first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("ValueError: no pipeline for this model")


# -- it can be read --------------------------------------------------------------------------------

#: For each text that is shown: its contrast with every colour that may be behind it, the least.
CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text(encoding="utf-8")


def unreadable(page: Page) -> list[tuple[str, float]]:
    """Texts whose contrast is less than WCAG's AA asks of small text."""
    texts = page.evaluate(CONTRASTS)
    assert len(texts) > 5
    return [(text, round(contrast, 2)) for text, contrast in texts if contrast < 4.5]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_can_be_read(scheme: str, opened: Callable[..., Page]) -> None:
    """Red when a text on the page or in a dialog has too little contrast."""
    page = opened(color_scheme=scheme)
    for summary in page.locator("main summary").all():
        summary.click()
    assert unreadable(page) == []
    for contract in ("rank-sum", "refusal", "state-rows", "pp1-unchanged"):
        page.locator(f'#matrix button[data-contract="{contract}"]').first.click()
        assert unreadable(page) == []
        page.keyboard.press("Escape")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_marks_can_be_seen(scheme: str, opened: Callable[..., Page]) -> None:
    """Red when a plot's line has less contrast with the page than WCAG asks of graphics."""
    page = opened(color_scheme=scheme)
    lines = page.locator("svg.plot").first.locator(".line").all()
    assert len(lines) == 4
    for line in lines:
        # The text's own colour is set to the line's, so that the same measure serves.
        line.evaluate(
            """line => {
              const text = line.parentElement.querySelector("text");
              text.style.fill = getComputedStyle(line).stroke;
            }"""
        )
    measured = [least for text, least in page.evaluate(CONTRASTS) if text.startswith("pp ")]
    assert min(measured) >= 3


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_are_those_of_the_scheme(scheme: str, opened: Callable[..., Page]) -> None:
    """Red when the page is light where the reader's system asks for dark, or the reverse."""
    page = opened(color_scheme=scheme)
    assert is_dark(page) == (scheme == "dark")


def test_colours_can_be_chosen(opened: Callable[..., Page]) -> None:
    """Red when the button does not change the colours, or the choice is forgotten."""
    page = opened(color_scheme="light")
    page.get_by_role("button", name="Dark colours").click()
    assert is_dark(page)
    page.reload()
    assert is_dark(page)
    page.get_by_role("button", name="Light colours").click()
    assert not is_dark(page)


def is_dark(page: Page) -> bool:
    colour = str(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    return sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128


#: What colours look like to people who do not see red, green or blue (Machado 2009), and to others.
SEEN = {
    "others": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no blue": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_and_less_differ(scheme: str, opened: Callable[..., Page]) -> None:
    """Red when more and less than expected look alike to somebody."""
    colours = opened(color_scheme=scheme).evaluate(
        """Object.fromEntries([...document.querySelectorAll(".scale .swatch")].map(
            (swatch) => [swatch.dataset.heat, getComputedStyle(swatch).backgroundColor]))"""
    )
    assert len(colours) == 10
    for eyes, step in itertools.product(SEEN, range(2, 6)):
        one, other = (lab(colours[f"{side}-{step}"], SEEN[eyes]) for side in ("over", "under"))
        assert math.dist(one, other) > 20, f"step {step} to {eyes}"


def lab(colour: str, eyes: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """A colour in CIE L*a*b*, in which distances are about as large as they look."""
    rgb = [int(channel) / 255 for channel in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    r, g, b = (min(1, max(0, sum(map(float.__mul__, map(float, row), linear)))) for row in eyes)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.0891
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


# -- small screens, paper, and readers who see nothing ---------------------------------------------


def test_a_telephone(opened: Callable[..., Page]) -> None:
    """Red when the page is wider than a telephone, or what is wider does not scroll in its box."""
    page = opened(NARROW, has_touch=True)
    for summary in page.locator("main summary").all():
        summary.click()
    assert width(page) <= NARROW
    for box in ("#matrix", "svg.plot >> nth=0", "table.numbers >> nth=0"):
        inside = page.locator(box).evaluate(
            "one => { const box = one.closest('.box'); return box.scrollWidth > box.clientWidth; }"
        )
        assert inside, box
    cell(page, RANK_SUM).click()
    dialog = page.get_by_role("dialog")
    place = dialog.bounding_box()
    assert place is not None
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= NARROW
    assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
    assert width(page) <= NARROW


def width(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_heads_stay_in_sight(opened: Callable[..., Page]) -> None:
    """Red when one scrolls through the matrix and no longer sees which cell is which."""
    page = opened(NARROW)
    box = page.locator(".box.wide")
    box.evaluate("box => box.scrollTo(90, 200)")
    name = page.get_by_role("rowheader", name="budget-use").bounding_box()
    head = page.get_by_role("columnheader", name=LABELS[1], exact=True).bounding_box()
    place = box.bounding_box()
    assert name is not None
    assert head is not None
    assert place is not None
    assert abs(name["x"] - place["x"]) < 4
    assert abs(head["y"] - place["y"]) < 4


def test_paper(opened: Callable[..., Page], tmp_path: Path) -> None:
    """Red when a printed matrix of all releases is cut off, or printed dark."""
    records = [documents.record(label, "0.5.12", documents.FACTORS[0]) for label in RELEASES]
    file = tmp_path / "all.html"
    file.write_text(page_of({"schema": 1, "records": records}), encoding="utf-8")
    page = opened(1040, color_scheme="dark")
    page.goto(file.as_uri())
    assert width(page) == 1040
    page.emulate_media(media="print")
    assert width(page) == 1040
    assert page.locator(".box.wide").evaluate("box => getComputedStyle(box).overflow") == "visible"
    assert not is_dark(page)
    expect(page.locator("#theme")).to_be_hidden()


@pytest.mark.parametrize(("motion", "behaviour"), [("reduce", "auto"), ("no-preference", "smooth")])
def test_motion(motion: str, behaviour: str, opened: Callable[..., Page]) -> None:
    """Red when something moves for a reader who asked that nothing does."""
    page = opened(reduced_motion=motion)
    told = page.evaluate("getComputedStyle(document.documentElement).scrollBehavior")
    assert told == behaviour
    moving = page.evaluate(
        """[...document.querySelectorAll("*")].filter((one) => {
          const style = getComputedStyle(one);
          return style.animationName !== "none" || !/^0s(, 0s)*$/.test(style.transitionDuration);
        }).length"""
    )
    assert moving == 0


def test_what_a_screen_reader_says(opened: Callable[..., Page]) -> None:
    """Red when the parts of the page have no names or roles for a reader who does not see it."""
    page = opened()
    told = page.locator("body").aria_snapshot()
    for said in (
        'grid "Contracts by release"',
        'rowheader "rank-sum"',
        'columnheader "0.5.12"',
        f'button "{RANK_SUM}"',
        'region "Capacity by release"',
        'heading "deepseek-v4.1-flash" [level=3]',
        'img "deepseek-v4-flash, 80 GiB a rank: full tokens by release',
    ):
        assert said in told
    cell(page, RANK_SUM).click()
    told = page.get_by_role("dialog").aria_snapshot()
    for said in (
        'dialog "rank-sum on 0.5.12"',
        'img "6 layers in 2 stages: [0,3)[3,6)"',
        'rowheader "c4_kv"',
        'columnheader "charged, bytes"',
        'button "Copy the replay line"',
        'button "Close"',
    ):
        assert said in told

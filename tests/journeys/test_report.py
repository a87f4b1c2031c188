"""The report as somebody sees it: in a browser, on a desk and on a phone, with a mouse and with a keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from qknorm.experiments.report import write_report
from tests.journeys.conftest import Command
from tests.reports import HOSTILE_LINE, HOSTILE_NAME, two_systems

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
in_a_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="needs Chromium and chromedriver (see CONTRIBUTING.md)"
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="module")
def chrome() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))  # with its path, it downloads no driver
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def report(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(two_systems(trained_run, folder / "runs"), folder / "report.html")
    return folder / "report.html"


@pytest.fixture
def page(chrome: webdriver.Chrome, report: Path) -> webdriver.Chrome:
    """The report, freshly loaded on a desk."""
    look(chrome, width=1200)
    chrome.get(report.as_uri())
    return chrome


def look(chrome: webdriver.Chrome, width: int, scheme: str = "light") -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}  # scrolling at once, not smoothly
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def part(page: webdriver.Chrome, name: str) -> WebElement:
    return page.find_element(By.ID, f"viewer-{name}")


def pieces(page: webdriver.Chrome) -> list[WebElement]:
    return part(page, "queries").find_elements(By.TAG_NAME, "button")


def pressed(page: webdriver.Chrome) -> list[int]:
    return [number for number, piece in enumerate(pieces(page)) if piece.get_attribute("aria-pressed") == "true"]


@in_a_browser
def test_it_loads_without_complaint_and_runs_nobody_else_s_code(page: webdriver.Chrome) -> None:
    assert page.get_log("browser") == []
    assert page.title == f"Report: {HOSTILE_NAME} and good"
    assert not page.find_elements(By.TAG_NAME, "img")
    assert HOSTILE_NAME in part(page, "system").text
    sentences = [option.get_attribute("textContent") for option in Select(part(page, "sentence")).options]
    assert HOSTILE_LINE in sentences
    texts = [source.get_attribute("textContent") for source in page.find_elements(By.CSS_SELECTOR, ".source")]
    assert HOSTILE_LINE in texts
    loaded = page.execute_script("return performance.getEntriesByType('resource').length")
    assert loaded == 0


@in_a_browser
def test_code_that_slipped_in_would_be_refused(page: webdriver.Chrome) -> None:
    """The policy of the page lets nothing run but the viewer."""
    smuggled = "const s = document.createElement('script'); s.text = 'document.title = 1'; document.body.append(s)"
    page.execute_script(smuggled)
    assert page.title == f"Report: {HOSTILE_NAME} and good"
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]


@in_a_browser
def test_the_viewer_reacts_to_the_mouse(page: webdriver.Chrome) -> None:
    Select(part(page, "sentence")).select_by_index(1)
    says = part(page, "says").text
    ActionChains(page).scroll_to_element(part(page, "keys")).move_to_element(pieces(page)[2]).perform()
    assert pressed(page) == [2]
    assert part(page, "says").text != says
    assert pieces(page)[2].text in part(page, "says").text
    bars = [str(bar.get_attribute("style")) for bar in page.find_elements(By.CSS_SELECTOR, ".bar i")]
    assert sum(float(bar.partition(":")[2].strip(" %;")) for bar in bars) == pytest.approx(100, abs=3)

    rows, columns = len(pieces(page)), len(bars)
    assert len(part(page, "map").find_elements(By.CSS_SELECTOR, "rect[fill]")) == rows * columns
    Select(part(page, "kind")).select_by_value("encoder")
    assert len(pieces(page)) == columns
    colours = {cell.get_attribute("fill") for cell in part(page, "map").find_elements(By.CSS_SELECTOR, "rect[fill]")}
    assert len(colours) > 5
    Select(part(page, "system")).select_by_index(1)
    assert Select(part(page, "sentence")).first_selected_option.get_attribute("value") == "1"
    Select(part(page, "sentence")).select_by_index(0)
    assert len(pieces(page)) != columns


@in_a_browser
def test_the_viewer_can_be_used_by_keyboard(page: webdriver.Chrome) -> None:
    pieces(page)[0].send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert pressed(page) == [2]
    assert page.switch_to.active_element == pieces(page)[2]
    style = page.switch_to.active_element.value_of_css_property("outline-style")
    assert style == "solid", "the focus must be visible"
    page.switch_to.active_element.send_keys(Keys.END)
    assert pressed(page) == [len(pieces(page)) - 1]
    button = part(page, "entropy").find_elements(By.TAG_NAME, "button")[-2]
    button.send_keys(Keys.ENTER)
    assert [Select(part(page, name)).first_selected_option.text for name in ("layer", "head")] == ["layer 2", "head 4"]
    assert page.switch_to.active_element.get_attribute("aria-pressed") == "true"
    part(page, "layer").send_keys(Keys.ARROW_UP)
    assert Select(part(page, "layer")).first_selected_option.text == "layer 1"
    assert page.switch_to.active_element == part(page, "layer")


@in_a_browser
@pytest.mark.parametrize("width", [390, 768])
def test_nothing_is_wider_than_the_screen(page: webdriver.Chrome, width: int) -> None:
    look(page, width)
    page.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


@in_a_browser
def test_it_is_dark_where_people_like_it_dark(page: webdriver.Chrome) -> None:
    def colours() -> list[str]:
        body = page.find_element(By.TAG_NAME, "body")
        return [body.value_of_css_property(name) for name in ("background-color", "color")]

    light = colours()
    look(page, 1200, "dark")
    assert not set(light) & set(colours())


def test_the_command(command: Command, trained_run: Path) -> None:
    done = command("report", str(trained_run), "-o", "out/it.html")
    assert (done.code, done.errors) == (0, "")
    assert "open it in a browser" in done.out
    assert Path("out/it.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    done = command("report", "nowhere")
    assert (done.code, done.out, done.errors) == (2, "", "qknorm: nowhere does not exist\n")
    done = command("report", str(trained_run), "-o", "out")
    assert (done.code, done.errors) == (2, "qknorm: out is a folder; the report is a file, such as out/report.html\n")

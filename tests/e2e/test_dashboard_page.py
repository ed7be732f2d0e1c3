"""The dashboard as a page, in a real Chromium, against made-up figures: readable, operable, and safe to look at."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from playwright.async_api import Page, Route, expect

from services.coordinator.http.ui_files import FOLDER
from tests.e2e.admin_stub import TOKEN, Stub
from tests.e2e.browser import Tab, chromium, load, needs_chromium, opened
from tests.e2e.page_checks import low_contrast, overflow, structure_faults

pytestmark = [pytest.mark.process, needs_chromium]

VIEWS = (
    "#/", "#/nodes", "#/pending", "#/queue", "#/queues", "#/jobs", "#/rebalance", "#/decisions", "#/policies",
    "#/autoscaling", "#/mesh", "#/health",
)  # fmt: skip
DRAWERS = (
    "#/pods/web/shop-1", "#/nodes/node-0003", "#/units/batch/train-0", "#/queues/vision", "#/autoscalers/shop/graph",
)  # fmt: skip
MARKUP = "<img src=x onerror='window.hit=1'><b class=strange>x</b>"


@asynccontextmanager
async def page_of(stub: Stub, **context: Any) -> AsyncIterator[Tab]:
    async with stub, chromium() as browser, opened(browser, stub.url, token=TOKEN, **context) as tab:
        await expect(tab.page.locator("#link-words")).to_have_text("Live")
        yield tab


async def show(tab: Tab, route: str) -> None:
    """Go there, a view or what a drawer over one explains, and wait until it shows something of the server's."""
    await tab.goto(route)
    if route.count("/") > 1:
        await expect(tab.page.locator("dialog.drawer .pairs")).not_to_have_count(0)
        await expect(tab.page.locator("dialog.drawer [role=status]")).to_have_count(0)
    else:
        # the browser tells of a new address a turn later: until then the view before stands there
        await expect(tab.page.locator("#views [aria-current=page]")).to_have_attribute("href", route)
        await expect(tab.page.locator("main td, main .pairs").first).to_be_attached()
    if route == "#/":
        await expect(tab.page.locator(".map-under")).to_contain_text("nodes")


async def strange_elements(page: Page) -> int:
    return await page.locator("img[src='x'], b.strange").count() + await page.evaluate("() => window.hit ?? 0")


async def test_text_of_the_cluster_is_never_markup() -> None:
    async with page_of(Stub(text=MARKUP)) as tab:
        for route in (*VIEWS, *DRAWERS):
            await show(tab, route)
            await expect(tab.page.get_by_text("onerror=").first).to_be_attached()
            assert await strange_elements(tab.page) == 0, route
        await tab.page.keyboard.press("Escape")
        await tab.page.get_by_role("button", name="Pause …").click()
        await tab.page.get_by_label("Reason, for the audit log").fill("firmware")
        await tab.page.get_by_role("button", name="Pause", exact=True).click()
        await expect(tab.page.locator("[data-banner=paused]")).to_contain_text("onerror=")
        assert await strange_elements(tab.page) == 0


async def test_the_markup_check_sees_markup_where_text_is_not_kept_text() -> None:
    """Switched off: the element builder takes strings as markup."""

    async def careless(route: Route) -> None:
        source = (FOLDER / "dom.js").read_text()
        kept = "element.append(child instanceof Node ? child : document.createTextNode(String(child)));"
        assert kept in source
        broken = "child instanceof Node ? element.append(child) : element.insertAdjacentHTML('beforeend', child);"
        await route.fulfill(body=source.replace(kept, broken), content_type="text/javascript")

    async with Stub(text=MARKUP) as stub, chromium() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        await page.route("**/dom.js", careless)
        await load(page, stub.url)
        await Tab(page).sign_in(TOKEN)
        await expect(page.locator("b.strange").first).to_be_attached()
        assert await strange_elements(page) > 0
        # the content policy still keeps the handler from running
        assert await page.evaluate("() => window.hit") is None
        await context.close()


@pytest.mark.parametrize("bypassed", [False, True], ids=["with the policy", "without it"])
async def test_the_content_policy_runs_no_inline_script(bypassed: bool) -> None:
    async with Stub() as stub, chromium() as browser:
        context = await browser.new_context(bypass_csp=bypassed)
        page = await context.new_page()
        await load(page, stub.url)
        await page.evaluate("""() => {
            const script = document.createElement('script');
            script.textContent = 'window.hit = 1';
            document.body.append(script);
        }""")
        assert await page.evaluate("() => window.hit") == (1 if bypassed else None)
        await context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_text_is_readable_and_everything_has_a_name(theme: str) -> None:
    async with page_of(Stub(), color_scheme=theme) as tab:
        for route in (*VIEWS, *DRAWERS):
            await show(tab, route)
            assert await low_contrast(tab.page) == [], route
            assert await structure_faults(tab.page) == [], route
        await tab.page.keyboard.press("Escape")
        await tab.goto("#/policies")
        await tab.page.get_by_role("button", name="Activate marl-dqn@7").click()
        assert await low_contrast(tab.page) == []
        assert await structure_faults(tab.page) == []


async def test_the_checks_of_a_page_see_faults() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/nodes")
        await tab.page.evaluate("""() => {
            document.documentElement.style.setProperty('--soft', '#c8c8c4');
            document.querySelector('main table caption').remove();
            document.querySelector('#list-main-find').removeAttribute('aria-label');
            document.querySelector('main h1').remove();
            document.querySelector('main').append(Object.assign(document.createElement('div'), { className: 'wide' }));
            document.querySelector('.wide').style.width = '4000px';
        }""")
        assert len(await low_contrast(tab.page)) > 3
        faults = {fault.split(":")[0] for fault in await structure_faults(tab.page)}
        assert faults >= {"no caption", "no label", "no h1"}
        assert await overflow(tab.page)


async def test_a_phone_of_360_pixels_shows_every_view_without_sideways_scrolling() -> None:
    async with page_of(Stub(), viewport={"width": 360, "height": 740}, has_touch=True) as tab:
        for route in (*VIEWS, *DRAWERS):
            await show(tab, route)
            assert await overflow(tab.page) == [], route


async def test_the_keyboard_alone_walks_the_map_opens_a_node_and_comes_back() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/")
        await tab.page.keyboard.press("Tab")
        focused = "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
        for _ in range(40):
            if "Nodes: arrow keys" in (await tab.page.evaluate(focused) or ""):
                break
            await tab.page.keyboard.press("Tab")
        for _ in range(3):
            await tab.page.keyboard.press("ArrowRight")
        await expect(tab.page.locator(".pointed")).to_contain_text("node-0003: CPU")
        await expect(tab.page.locator(".pointed")).to_contain_text("drained")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_role("dialog", name="node-0003")).to_be_visible()
        await tab.page.keyboard.press("Escape")
        await expect(tab.page.get_by_role("dialog")).to_have_count(0)
        assert "Nodes: arrow keys" in await tab.page.evaluate(focused)
        assert tab.page.url.endswith("#/")


async def test_a_view_that_is_gone_to_while_a_drawer_closes_is_shown() -> None:
    """The browser tells of a closed dialog a turn later, when the reader may have gone on."""
    async with page_of(Stub()) as tab:
        for drawer in DRAWERS:
            await show(tab, drawer)
            await tab.page.evaluate("""() => {
                document.querySelector('dialog.drawer').close();
                location.hash = '#/policies';
            }""")
            await expect(tab.page.get_by_role("button", name="Activate marl-dqn@7")).to_be_visible()
            assert tab.page.url.endswith("#/policies"), drawer
            await show(tab, "#/")


async def test_a_viewer_is_offered_no_change_and_an_operator_confirms_with_a_reason() -> None:
    async with page_of(Stub(role="viewer")) as tab:
        await show(tab, "#/policies")
        await expect(tab.page.get_by_role("button", name=re.compile("Activate|Roll back|Pause"))).to_have_count(0)
    stub = Stub(role="operator")
    async with page_of(stub) as tab:
        await show(tab, "#/nodes/node-0007")
        await tab.page.get_by_role("button", name="Resume …").click()
        await expect(tab.page.get_by_role("dialog", name="Resume node-0003")).to_be_visible()
        await tab.page.get_by_role("button", name="Back").click()
        assert stub.posts == []
        await tab.page.get_by_role("button", name="Resume …").click()
        await tab.page.get_by_label("Reason, for the audit log").fill("disk replaced")
        await tab.page.get_by_role("button", name="Resume", exact=True).click()
        await expect(tab.page.get_by_role("status").filter(has_text="takes pods again")).to_be_visible()
        assert stub.posts == [("/v1/nodes/node-0003/resume", {"reason": "disk replaced"})]


async def test_a_change_that_the_leader_has_not_confirmed_is_told_as_such() -> None:
    stub = Stub(role="operator")
    stub.obeyed = False
    async with page_of(stub) as tab:
        await tab.page.get_by_role("button", name="Pause …").click()
        await tab.page.get_by_role("button", name="Pause", exact=True).click()
        await expect(tab.page.get_by_role("alert").filter(has_text="was not confirmed in time")).to_be_visible()


async def test_a_refusal_stays_in_the_dialog() -> None:
    stub = Stub(role="operator")
    async with page_of(stub) as tab:
        stub.figures.role = "viewer"  # the token was changed meanwhile
        await tab.page.get_by_role("button", name="Pause …").click()
        await tab.page.get_by_role("button", name="Pause", exact=True).click()
        await expect(tab.page.get_by_role("alert").filter(has_text="may not do this")).to_be_visible()
        await expect(tab.page.get_by_role("dialog", name="Pause scheduling")).to_be_visible()


async def test_without_streams_the_page_asks_every_other_second() -> None:
    stub = Stub()
    stub.streams = False
    async with stub, chromium() as browser, opened(browser, stub.url, token=TOKEN) as tab:
        await expect(tab.page.locator("#link-words")).to_have_text("Every 2 s")
        await expect(tab.page.get_by_role("row").filter(has_text="web/shop-").first).to_be_attached()


LONG = [f"ip-10-0-{number // 40}-{number % 40}.eu-west-1.compute.internal" for number in range(120)]


@pytest.mark.parametrize("width", [400, 1280, 1920])
async def test_names_of_nodes_stand_on_one_line_and_are_whole_on_hover(width: int) -> None:
    stub = Stub()
    stub.figures.names = LONG
    async with page_of(stub, viewport={"width": width, "height": 900}) as tab:
        for route in ("#/", "#/nodes", "#/decisions"):
            await show(tab, route)
            names = tab.page.locator("main .node-name")
            await expect(names.first).to_have_text(re.compile("^…"))
            found = await names.evaluate_all(
                "all => all.map((one) => [one.getClientRects().length, one.title, one.textContent.split('…').join('')])"
            )
            assert {lines for lines, _, _ in found} == {1}, route
            assert all(title in LONG and part in title for _, title, part in found), route
            assert await overflow(tab.page) == []


@pytest.mark.parametrize("width", [400, 1280, 1920])
async def test_the_bars_of_a_column_begin_at_one_place(width: int) -> None:
    async with page_of(Stub(), viewport={"width": width, "height": 900}) as tab:
        for route, table in (("#/", "Resources of all nodes"), ("#/nodes", "Nodes"), ("#/queues", "Queues")):
            await show(tab, route)
            places = await tab.page.get_by_role("table", name=table).evaluate("""(table) => {
                const found = {};
                for (const bar of table.querySelectorAll('.meter, .quota-bar')) {
                    const cell = bar.closest('td, th');
                    (found[cell.cellIndex] ??= new Set()).add(Math.round(bar.getBoundingClientRect().left));
                }
                return Object.values(found).map((lefts) => [...lefts]);
            }""")
            assert places, route
            assert all(len(lefts) == 1 for lefts in places), (route, places)


async def test_a_column_that_holds_nothing_is_not_shown_and_the_reason_has_room() -> None:
    stub = Stub()
    async with page_of(stub, viewport={"width": 1280, "height": 900}) as tab:
        await show(tab, "#/queue")
        headers = tab.page.get_by_role("table", name="Pods in the queue").get_by_role("columnheader")
        await expect(headers.filter(has_text="Nominated to")).to_have_count(0)
        await expect(headers.filter(has_text="Reason")).to_be_visible()
        await show(tab, "#/pending")
        table = tab.page.get_by_role("table", name="Groups of pending pods")
        widths = await table.locator("thead th").evaluate_all(
            "all => all.map((one) => [one.textContent, one.getBoundingClientRect().width])"
        )
        assert dict(widths)["Reason"] >= 300


@pytest.mark.parametrize(("width", "media"), [(1000, "screen"), (760, "print")])
async def test_what_would_help_is_seen_at_a_thousand_pixels_and_on_paper(
    width: int, media: Literal["screen", "print"]
) -> None:
    stub = Stub()
    stub.figures.waiting = 12
    async with page_of(stub, viewport={"width": width, "height": 900}) as tab:
        await tab.page.emulate_media(media=media)
        await show(tab, "#/pending")
        cell = (
            tab.page.get_by_role("table", name="Groups of pending pods").locator("tbody td", has_text="lets in").first
        )
        await expect(cell).to_be_visible()
        box = await cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width


async def test_a_reason_leads_to_what_it_means_without_a_token() -> None:
    stub = Stub()
    stub.figures.waiting = 12
    async with page_of(stub) as tab:
        await show(tab, "#/pending")
        reason = tab.page.get_by_role("link", name="NodeResourcesFit").first
        await expect(reason).to_have_attribute("href", "reasons.html#noderesourcesfit")
    async with Stub() as other, chromium() as browser, opened(browser, other.url) as tab:
        await tab.page.goto(f"{other.url}/ui/reasons.html#queuequota")
        await expect(tab.page.locator("#queuequota")).to_be_in_viewport()
        assert await low_contrast(tab.page) == []
        assert await overflow(tab.page) == []


async def test_sign_in_says_where_the_token_is() -> None:
    async with Stub() as stub, chromium() as browser, opened(browser, stub.url) as tab:
        places = tab.page.get_by_role("region", name="Where the token is")
        for told in ("conclave up", "admin-token-file", "get secret conclave-admin-token", "/secrets/admin-tokens"):
            await expect(places).to_contain_text(told)


async def test_a_runbook_is_read_without_a_token() -> None:
    async with Stub() as stub, chromium() as browser, opened(browser, stub.url) as tab:
        await tab.page.goto(f"{stub.url}/ui/runbooks.html#conclaveleaderlate")
        section = tab.page.get_by_role("region", name="ConclaveLeaderLate")
        await expect(section).to_contain_text("Give the leader a core of its own")
        await expect(section).to_be_in_viewport()
        assert await low_contrast(tab.page) == []
        assert await overflow(tab.page) == []


async def test_the_map_of_a_gpu_cluster_opens_on_gpus() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/")
        await expect(tab.page.get_by_label("Colour")).to_have_value("nvidia.com/gpu")
        await expect(tab.page.locator(".map-under")).to_contain_text("100 % requested of nvidia.com/gpu")
        await tab.page.get_by_label("Colour").select_option("fullest")
        assert "colour=fullest" in tab.page.url


async def test_a_drawer_whose_question_got_no_answer_asks_again_while_it_is_open() -> None:
    asked: list[str] = []

    async def silent_twice(route: Route) -> None:
        asked.append(route.request.url)
        await (route.abort() if len(asked) <= 2 else route.continue_())

    async with page_of(Stub()) as tab:
        await tab.page.route("**/explain", silent_twice)
        await tab.goto("#/pods/web/shop-1")
        drawer = tab.page.locator("dialog.drawer")
        await expect(drawer.get_by_role("alert")).to_contain_text("does not answer")
        await expect(drawer).to_contain_text("In the queue")
        await expect(drawer.get_by_role("alert")).to_have_count(0)
        assert len(asked) == 3


async def test_rows_hold_still_while_somebody_points_at_them() -> None:
    async with page_of(Stub(), viewport={"width": 1360, "height": 1400}) as tab:
        rows = tab.page.get_by_role("table", name="Newest decisions").locator("tbody tr")
        await rows.first.hover()
        await expect(tab.page.get_by_text("held still while you read")).to_be_visible()
        held = await rows.all_inner_texts()
        bound = tab.page.get_by_text("by this leader")
        for _ in range(2):
            await expect(bound).not_to_have_text(await bound.inner_text())
        assert await rows.all_inner_texts() == held
        await tab.page.mouse.move(2, 2)
        await expect(rows.first).not_to_have_text(held[0])


async def test_events_cut_anywhere_are_read_whole() -> None:
    async with Stub() as stub, chromium() as browser, opened(browser, stub.url) as tab:
        faults = await tab.page.evaluate("""async () => {
            const { EventParser } = await import('/ui/stream.js');
            const text = ': heartbeat\\n\\nid: 7-1\\nevent: decision\\ndata: {"a":1}\\n\\n'
                + 'event: overview\\r\\ndata: {}\\r\\n\\r\\n';
            const wanted = JSON.stringify([
                { name: 'decision', id: '7-1', data: '{"a":1}' }, { name: 'overview', id: '', data: '{}' }]);
            const faults = [];
            for (let first = 0; first <= text.length; first++) {
                for (const second of [first, Math.min(text.length, first + 3)]) {
                    const parser = new EventParser();
                    const parts = [text.slice(0, first), text.slice(first, second), text.slice(second)];
                    const read = JSON.stringify(parts.flatMap((part) => parser.push(part)));
                    if (read !== wanted) faults.push(`${first}, ${second}: ${read}`);
                }
            }
            return faults;
        }""")
        assert faults == []


async def test_a_failover_is_shown_and_announced() -> None:
    stub = Stub()
    async with page_of(stub) as tab:
        await expect(tab.page.locator("#leading")).to_contain_text("coordinator-0")
        stub.figures.leader = None
        await expect(tab.page.locator("#banners")).to_contain_text("No leader.")
        assert await tab.page.locator("#banners").get_attribute("aria-live") == "assertive"
        stub.figures.leader, stub.figures.term = "coordinator-1", 41
        await expect(tab.page.locator("#leading")).to_contain_text("coordinator-1 leads, term 41")
        said = re.compile("coordinator-1 leads now, term 41 after .* without a leader")
        await expect(tab.page.locator("#announcer")).to_have_text(said)
        await expect(tab.page.locator("#banners > div")).to_have_count(0)


async def test_a_coordinator_that_comes_back_is_found_again() -> None:
    stub = Stub()
    async with page_of(stub) as tab:
        await stub.stop()
        await expect(tab.page.locator("#banners")).to_contain_text("This coordinator does not answer.")
        await stub.start()
        await expect(tab.page.locator("#link-words")).to_have_text("Live")
        await expect(tab.page.locator("#banners > div")).to_have_count(0)


async def test_a_page_whose_first_question_gets_no_answer_asks_again() -> None:
    asked: list[str] = []

    async def silent_once(route: Route) -> None:
        asked.append(route.request.url)
        await (route.abort() if len(asked) == 1 else route.continue_())

    async with Stub() as stub, chromium() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        await page.route("**/v1/whoami", silent_once)
        await load(page, stub.url)
        await expect(page.get_by_label("Admin token")).to_be_visible()
        assert len(asked) > 1
        await context.close()


async def test_a_wrong_token_is_refused_and_a_right_one_is_kept_in_this_tab_alone() -> None:
    async with Stub() as stub, chromium() as browser, opened(browser, stub.url) as tab:
        for wrong in ("wrong", "schlüssel"):
            await tab.page.get_by_label("Admin token").fill(wrong)
            await tab.page.get_by_role("button", name="Sign in").click()
            await expect(tab.page.get_by_role("alert")).to_contain_text("not accepted")
        await tab.sign_in(TOKEN)
        kept = "() => [JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie, location.href]"
        in_session, *elsewhere = await tab.page.evaluate(kept)
        assert TOKEN in in_session
        assert not any(TOKEN in text for text in elsewhere)
        await tab.page.get_by_role("button", name="Sign out").click()
        await expect(tab.page.get_by_label("Admin token")).to_be_visible()
        assert TOKEN not in (await tab.page.evaluate(kept))[0]


async def test_the_theme_switch_overrides_the_system_and_is_remembered() -> None:
    async with page_of(Stub(), color_scheme="light") as tab:
        paper = "() => getComputedStyle(document.body).backgroundColor"
        light = await tab.page.evaluate(paper)
        for _ in range(2):
            await tab.page.get_by_role("button", name=re.compile("^Theme")).click()
        dark = await tab.page.evaluate(paper)
        assert dark != light
        await tab.page.reload()
        await expect(tab.page.locator("#link-words")).to_have_text("Live")
        assert await tab.page.evaluate(paper) == dark

"""The dashboard under load, in a real Chromium: what it says of old and refused data, how it finds its way in long
lists, and how little it asks for."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.e2e import admin_load
from tests.e2e.admin_figures import clock
from tests.e2e.admin_load import finding
from tests.e2e.admin_stub import TOKEN, Stub
from tests.e2e.browser import Tab, chromium, load, needs_chromium, opened
from tests.e2e.page_checks import letter_wrapping, low_contrast, structure_faults
from tests.e2e.test_dashboard_page import DRAWERS, VIEWS, page_of, show

pytestmark = [pytest.mark.process, needs_chromium]

LISTS = {
    "#/nodes": "/v1/nodes", "#/queue": "/v1/queue", "#/queues": "/v1/queues", "#/pending": "/v1/pending",
    "#/policies": "/v1/policies", "#/mesh": "/v1/members", "#/autoscaling": "/v1/autoscalers",
}  # fmt: skip
"""What each view shows first, and its route."""
NEVER = re.compile(
    r"No nodes\.|Nothing waits\.|There is no Queue|No policies\.|No members are registered\.|No autoscaler has recorded"
)


def rows(page: Page, name: str) -> Any:
    return page.get_by_role("table", name=name).locator("tbody tr")


async def first_cells(page: Page, name: str) -> list[str]:
    return await rows(page, name).locator("th").all_inner_texts()


@pytest.mark.parametrize("route", LISTS)
async def test_a_refused_list_never_says_that_there_is_nothing(route: str) -> None:
    stub = Stub()
    stub.busy[LISTS[route]] = 1
    async with page_of(stub) as tab:
        await tab.goto(route)
        await expect(tab.page.locator("main .as-of:visible").first).to_contain_text(
            "The leader runs late and has no copy"
        )
        await expect(tab.page.get_by_text(NEVER)).to_have_count(0)
        stub.busy.clear()
        await expect(tab.page.locator("main td").first).to_be_attached()
        await expect(tab.page.locator("main .as-of:visible")).to_have_count(0)


async def test_a_list_keeps_the_last_data_with_their_age_while_it_is_refused() -> None:
    stub = Stub()
    async with page_of(stub) as tab:
        await show(tab, "#/nodes")
        shown = await first_cells(tab.page, "Nodes")
        stub.busy["*"] = 1
        note = tab.page.locator("main > div > .as-of")
        await expect(note).to_have_text(re.compile(r"Shown as of [\d.]+ s ago\. The leader runs late and"))
        assert await first_cells(tab.page, "Nodes") == shown
        assert await low_contrast(tab.page) == []
        stub.busy.clear()
        await expect(note).to_be_hidden()


async def test_a_copy_is_shown_with_its_age_and_a_new_answer_without() -> None:
    stub = Stub()
    async with page_of(stub) as tab:
        await show(tab, "#/nodes")
        note = tab.page.locator("main > div > .as-of")
        await expect(note).to_be_hidden()
        stub.old["*"] = 40
        await expect(note).to_have_text(re.compile(r"^Shown as of 4\d s ago\. +Try now$"))
        await expect(rows(tab.page, "Nodes")).to_have_count(100)
        await tab.goto("#/nodes/node-0003")
        await expect(tab.page.locator("dialog.drawer .as-of")).to_contain_text("As of 40 s ago")
        await tab.page.keyboard.press("Escape")
        stub.old.clear()
        await expect(note).to_be_hidden()


async def test_pods_of_one_class_are_one_row_that_opens() -> None:
    stub = Stub()
    stub.figures.waiting, stub.figures.classes = 20, [7]
    async with page_of(stub) as tab:
        await show(tab, "#/queue")
        pods = rows(tab.page, "Pods in the queue")
        # of one class by priority and by who rejects them
        await expect(pods).to_have_count(4)
        await pods.get_by_role("button", name="alike").first.click()
        assert await pods.count() > 4
        await tab.page.get_by_label("Pod, rule or node: Pods in the queue").fill("train-1")
        await expect(pods).to_have_count(11)


async def test_waiting_is_the_same_number_on_every_page() -> None:
    stub = Stub()
    total = sum(stub.figures.places().values())
    async with page_of(stub) as tab:
        waiting = tab.page.locator(".figure", has_text="Waiting").locator(".value")
        await expect(waiting).to_have_text(str(total))
        await tab.goto("#/queue")
        await expect(tab.page.locator(".view-head")).to_contain_text(f"{total} waiting")
        await expect(tab.page.locator(".view-head")).to_contain_text("5 gated")
        pending = admin_load.pending(stub.figures.groups, {}, "")
        await tab.goto("#/pending")
        await expect(tab.page.locator(".view-head")).to_contain_text(f"{pending['pods'] + pending['gated']:,} waiting")


async def test_figures_that_stop_coming_are_never_shown_as_live() -> None:
    stub = Stub()
    async with page_of(stub) as tab:
        words, pill = tab.page.locator("#link-words"), tab.page.locator("#link-state")
        await expect(pill).to_have_attribute("data-level", "ok")
        stub.mute = True
        stub.busy["*"] = 1
        await expect(words).to_have_text(re.compile("^Late: .* old$"))
        await expect(pill).to_have_attribute("data-level", "degraded")
        await expect(tab.page.locator("#banners")).to_contain_text("No figures come.")
        await expect(pill).to_have_attribute("data-level", "bad")
        await expect(tab.page.locator("#leading")).to_contain_text("coordinator-0")
        stub.mute, stub.busy = False, {}
        await expect(words).to_have_text("Live")
        await expect(tab.page.locator("#banners > div")).to_have_count(0)


async def test_what_the_leader_finds_stands_in_the_header_and_is_explained() -> None:
    stub = Stub()
    stub.figures.findings = [
        finding("leader_late", "bad", since=clock(60)), finding("writes_queued", "degraded", since=clock(30)),
    ]  # fmt: skip
    async with stub, chromium() as browser, opened(browser, stub.url, token=TOKEN) as tab:
        await expect(tab.page.locator("#link-words")).to_have_text("Leader late and 1 more")
        await expect(tab.page.locator("#link-state")).to_have_attribute("data-level", "bad")
        await expect(tab.page.locator("[data-banner=findings]")).to_contain_text("Leader late, Writes queued")
        await tab.page.get_by_role("link", name="What it means and what to do").click()
        late = tab.page.get_by_role("region", name="Leader late")
        await expect(late).to_contain_text("took 1.42 s")
        await expect(late).to_contain_text("1.42 s (threshold 0.25 s)")
        await expect(late).to_contain_text("What to do: give the leader a core of its own")
        runbook = late.get_by_role("link", name="ConclaveLeaderLate")
        await expect(runbook).to_have_attribute("href", "runbooks.html#conclaveleaderlate")
        assert await low_contrast(tab.page) == []
        assert await structure_faults(tab.page) == []
        stub.figures.findings = []
        await expect(tab.page.locator("#link-words")).to_have_text("Live")
        await expect(tab.page.locator("#banners > div")).to_have_count(0)


async def test_a_leader_that_tells_no_health_is_not_shown_as_healthy() -> None:
    class Older(Stub):
        def __init__(self) -> None:
            super().__init__()
            told = self.figures.overview
            self.figures.overview = lambda: {key: value for key, value in told().items() if key != "health"}  # type: ignore[method-assign]

    async with page_of(Older()) as tab:
        await expect(tab.page.locator("#link-state")).to_have_attribute("data-level", "unknown")


async def test_pending_pods_are_grouped_filtered_and_followed_to_the_pods() -> None:
    stub = Stub()
    stub.figures.waiting = 12
    async with page_of(stub) as tab:
        await show(tab, "#/pending")
        groups = rows(tab.page, "Groups of pending pods")
        await expect(groups).to_have_count(40)
        await expect(groups.filter(has_text="lets in")).to_have_count(24)
        await expect(tab.page.get_by_role("region", name="What would help most")).to_contain_text("lets in")
        reasons = tab.page.get_by_role("region", name="By reason")
        await reasons.get_by_role("button", name="NodeAffinity").click()
        await expect(groups).to_have_count(8)
        assert tab.page.url.endswith("#/pending?reason=NodeAffinity")
        await tab.page.get_by_label("Order").select_option("oldest")
        await expect(groups.first).to_contain_text("00000002")
        await tab.page.reload()
        await expect(groups).to_have_count(8)
        await tab.goto("#/pending?reason=NodeAffinity&namespace=team-2&sort=oldest")
        await expect(groups).to_have_count(2)
        await tab.page.get_by_role("button", name="Without Namespace team-2").click()
        await expect(groups).to_have_count(8)
        await groups.first.get_by_role("link", name=re.compile("pods of this group")).click()
        await expect(tab.page.get_by_role("heading", name="Scheduling queue")).to_be_visible()
        await expect(tab.page.get_by_label("Namespace")).to_have_value("team-2")
        await expect(tab.page.get_by_label("Reason", exact=True)).to_have_value("NodeAffinity")
        await tab.goto("#/queue?reason=NodeAffinity&class=00000003")
        await expect(rows(tab.page, "Pods in the queue")).to_have_count(1)
        await expect(rows(tab.page, "Pods in the queue")).to_contain_text("batch/train-3")
        await tab.page.go_back()
        await expect(tab.page.get_by_label("Namespace")).to_have_value("team-2")


async def test_queues_are_a_tree_with_quotas_and_units_are_found_by_phase_and_queue() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/queues")
        queues, units = rows(tab.page, "Queues"), rows(tab.page, "Units")
        await expect(queues).to_have_count(4)
        lost, *others = await first_cells(tab.page, "Queues")
        assert lost.startswith("lost\nbeing deleted\nwarning")
        assert lost.endswith("problem\nspec.parent: there is no Queue base")
        assert others == ["research", "speech\nin research", "vision\nin research"]
        await expect(queues.nth(3)).to_contain_text("30 of at most 48, 24 guaranteed")
        await expect(queues.nth(3).locator(".quota-bar i.borrowed").first).to_be_visible()
        await tab.page.get_by_label("State of the queue").select_option("problem")
        await expect(queues).to_have_count(1)
        await expect(units).to_have_count(5)
        await tab.page.get_by_label("Phase").select_option("broken")
        await expect(units).to_have_count(1)
        await expect(units.first).to_contain_text("3 of 8")
        await tab.page.reload()
        await units.get_by_role("button", name="and 5 alike").click()
        await expect(units).to_have_count(6)
        await tab.page.get_by_label("Phase").select_option("waiting")
        await units.first.get_by_role("link", name="batch/train-0").click()
        drawer = tab.page.locator("dialog.drawer")
        await expect(drawer).to_contain_text("0 of 8 members on nodes, at least 6 or none")
        await expect(drawer.get_by_role("table", name="Asked to leave for it")).to_contain_text("web/old")
        tried = drawer.get_by_role("region", name="Tried now")
        for told in (
            "4 of 6 waiting members fit together", "queue research: cpu 48", "2 members without a node",
            "node-0000 lacks 2 nvidia.com/gpu", "each rack takes: r7 4, r8 1", "breaks the gang batch/poor",
        ):  # fmt: skip
            await expect(tried).to_contain_text(told)
        await drawer.get_by_role("link", name="vision").first.click()
        await expect(drawer.get_by_role("table", name="Units in turn").locator("tbody tr")).to_have_count(6)


async def test_lists_are_searched_sorted_and_filtered_and_the_address_keeps_it() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/nodes")
        nodes = rows(tab.page, "Nodes")
        await tab.page.get_by_role("button", name="CPU requested").click()
        header = tab.page.get_by_role("columnheader", name="CPU requested")
        await expect(header).to_have_attribute("aria-sort", "descending")
        shares = [int(text.split("%")[0]) for text in await nodes.locator("td:nth-child(3)").all_inner_texts()]
        assert shares == sorted(shares, reverse=True)
        assert len(set(shares)) > 10
        await tab.page.get_by_label("Has resource").select_option("nvidia.com/gpu")
        await tab.page.get_by_label("Name, zone, pool, taint: Nodes").fill("gpu-a100 eu-1b")
        await expect(nodes).to_have_count(4)
        await expect(nodes.first).to_contain_text(re.compile(r"nvidia.com/gpu \d of 8"))
        found = await first_cells(tab.page, "Nodes")
        assert "sort=-cpu" in tab.page.url
        await tab.page.reload()
        await expect(nodes).to_have_count(4)
        assert await first_cells(tab.page, "Nodes") == found
        await nodes.first.get_by_role("link").click()
        await tab.page.keyboard.press("Escape")
        await expect(tab.page).to_have_url(re.compile("has=nvidia"))
        await tab.page.get_by_role("button", name="Clear").click()
        await expect(nodes).to_have_count(100)
        await tab.page.get_by_label("State").select_option("not_ready")
        await expect(nodes).to_have_count(1)
        await expect(nodes).to_contain_text("not ready")
        await tab.page.get_by_label("State").select_option("pressure")
        await expect(nodes).to_contain_text("memory pressure")


async def test_ten_thousand_pods_and_five_thousand_nodes_are_a_page_of_rows_and_few_questions() -> None:
    stub = Stub(nodes=5000)
    stub.figures.waiting = 10_000
    async with stub, chromium() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        await page.clock.install()
        await load(page, stub.url)
        tab = Tab(page)
        await tab.sign_in(TOKEN)
        for route, name, path, pages, total in (
            ("#/queue", "Pods in the queue", "/v1/queue", 20, "10,000"), ("#/nodes", "Nodes", "/v1/nodes", 10, "5,000"),
        ):  # fmt: skip
            stub.asked.clear()
            await tab.goto(route)
            await expect(page.get_by_text(re.compile(f"of {total}$"))).to_be_visible()
            await expect(rows(page, name)).to_have_count(100)
            assert Counter(stub.asked)[path] == pages
            await page.clock.fast_forward(10_000)
            await page.get_by_role("button", name="More").first.click()
            await expect(page.get_by_text(re.compile(f"101.200 of {total}$"))).to_be_visible()
            assert Counter(stub.asked)[path] == pages
        await context.close()


async def test_a_leader_that_wants_no_more_questions_is_asked_seldomer_and_seldomer() -> None:
    stub = Stub()
    async with stub, chromium() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        await page.clock.install()
        await load(page, stub.url)
        tab = Tab(page)
        await tab.sign_in(TOKEN)
        await show(tab, "#/queue")
        stub.busy["/v1/queue"] = 1
        note = page.locator("main > div > .as-of")
        asked = []
        for _ in range(6):
            stub.asked.clear()
            for _ in range(10):
                await page.clock.run_for(1000)
                await page.evaluate(
                    "() => fetch('/v1/whoami').then((answer) => answer.text())"
                )  # what came before is answered
            asked.append(Counter(stub.asked)["/v1/queue"])
        assert asked[0] >= 1
        assert sum(asked[-3:]) <= 2, asked
        await expect(note).to_contain_text("Asking again")
        await context.close()


async def test_the_map_is_coloured_by_a_resource_and_grouped_and_the_address_keeps_it() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/")
        await tab.page.get_by_label("Colour").select_option("nvidia.com/gpu")
        await tab.page.get_by_label("Group").select_option("zone")
        assert "group=zone" in tab.page.url
        canvas = tab.page.get_by_label("Nodes: arrow keys walk")
        pointed = tab.page.locator(".pointed")
        await expect(pointed).to_contain_text("Point at a node")
        await canvas.focus()
        await expect(pointed).to_contain_text("node-0000: CPU")
        await tab.page.keyboard.press("ArrowRight")
        await expect(pointed).to_contain_text(re.compile("node-0003: .* in eu-1a"))
        await tab.page.keyboard.press("End")
        await expect(pointed).to_contain_text(re.compile("node-0119: .* in eu-1c"))
        await tab.page.reload()
        await expect(tab.page.get_by_label("Group")).to_have_value("zone")
        await expect(tab.page.get_by_role("table", name="Resources of all nodes")).to_contain_text("nvidia.com/gpu")


async def test_groups_of_the_map_lie_apart_and_inside_it_whatever_their_number() -> None:
    async with Stub() as stub, chromium() as browser, opened(browser, stub.url) as tab:
        faults = await tab.page.evaluate("""async () => {
            const { arrange } = await import('/ui/map_layout.js');
            const faults = [];
            for (const [nodes, groups] of [[1, 1], [120, 3], [5000, 1], [5000, 40], [5000, 500], [700, 700]])
                for (const width of [310, 820]) {
                    const group = Array.from({ length: nodes }, (_, i) => i % groups);
                    const names = Array.from({ length: groups }, (_, i) => `g${i}`);
                    const made = arrange(nodes, width, { group, groups: names });
                    const taken = new Set(made.places.map(([x, y]) => `${x},${y}`));
                    if (taken.size !== nodes) faults.push(`${nodes}/${groups}: ${nodes - taken.size} on top of others`);
                    if (made.rows.flat().length !== nodes) faults.push(`${nodes}/${groups}: not all are walked`);
                    for (const [x, y] of made.places)
                        if (x + made.size > width || y + made.size > made.height) faults.push(`${x},${y} outside`);
                    for (const one of made.titles) if (one.x + one.width > width) faults.push(`${one.text} outside`);
                }
            return faults.slice(0, 5);
        }""")
        assert faults == []


async def test_charts_have_an_hour_at_once_and_tell_their_values() -> None:
    async with page_of(Stub()) as tab:
        await tab.page.get_by_role("button", name="1 hour").click()
        assert tab.page.url.endswith("range=1h")
        chart = tab.page.get_by_role("img", name=re.compile("^Placed per second: .* in the last 1 hour"))
        await expect(chart).to_have_attribute("aria-label", re.compile("between 0 and"))
        await chart.focus()
        await tab.page.keyboard.press("Home")
        told = tab.page.locator(".figure").first.locator(".plotted")
        await expect(told).to_contain_text(re.compile(r"^\d\d:\d\d:\d\d: placed/s [\d.]+, evicted/s [\d.]+$"))
        before = await told.inner_text()
        await tab.page.keyboard.press("ArrowRight")
        await expect(told).not_to_have_text(before)
        box = await chart.bounding_box()
        assert box is not None
        await tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        await expect(told).to_contain_text("placed/s")
        await tab.goto("#/policies")
        await expect(tab.page.get_by_role("img", name=re.compile("goal balance"))).to_be_visible()
        await tab.page.get_by_label("Goal", exact=True).select_option("neutral")
        await expect(tab.page.get_by_role("img", name=re.compile("goal neutral"))).to_be_visible()


async def test_axes_end_in_round_values_that_hold_the_greatest() -> None:
    async with Stub() as stub, chromium() as browser, opened(browser, stub.url) as tab:
        wrong = await tab.page.evaluate("""async () => {
            const { ticksTo } = await import('/ui/chart.js');
            return [0.003, 0.9, 1, 1.01, 7, 29, 30, 31, 99, 1400, 123456].filter((most) => {
                const ticks = ticksTo(most);
                const whole = ticks[0] === 0 && ticks.at(-1) >= most && ticks.at(-2) < most;
                return !whole || ticks.length < 3 || ticks.length > 5;
            });
        }""")
        assert wrong == []


async def test_a_candidate_waits_for_an_operator_and_is_promoted_by_the_pointer_that_was_seen() -> None:
    stub = Stub(role="operator")
    async with page_of(stub) as tab:
        await show(tab, "#/policies")
        await expect(tab.page.locator(".versus")).to_contain_text("until it is promoted by hand")
        await expect(tab.page.locator(".rules")).to_contain_text("An operator promotes it to canary 50 %")
        await tab.page.get_by_role("button", name="Promote …").click()
        await tab.page.get_by_label("Reason, for the audit log").fill("seen enough")
        await tab.page.get_by_role("button", name="Promote", exact=True).click()
        await expect(tab.page.get_by_role("status").filter(has_text="was promoted")).to_be_visible()
        body = {"name": "marl-dqn@7", "number": 4, "reason": "seen enough"}
        assert stub.posts == [("/v1/policies/promote", body)]


async def test_the_cluster_is_named_in_the_header_and_the_title() -> None:
    async with page_of(Stub()) as tab:
        await expect(tab.page.locator("#cluster")).to_have_text("prod-eu")
        await expect(tab.page).to_have_title("Overview · prod-eu · Conclave")
        await tab.goto("#/pending")
        await expect(tab.page).to_have_title("Why pending · prod-eu · Conclave")


async def test_a_node_tells_its_state_and_counts_its_pods_and_agents_have_a_state() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/nodes/node-0003")
        drawer = tab.page.get_by_role("dialog", name="node-0003")
        await expect(drawer).to_contain_text("17 pods here, 1 of highest priority shown; 1 by Conclave")
        await expect(drawer.get_by_role("row").filter(has_text="pods")).to_contain_text("17110")
        await expect(drawer).to_contain_text("Ready is False")
        await tab.page.keyboard.press("Escape")
        await show(tab, "#/mesh")
        await expect(rows(tab.page, "Agents").first).to_contain_text("suspected")
        states = await rows(tab.page, "Agents").locator("td:nth-child(2)").all_inner_texts()
        assert all(text.strip() for text in states)


async def test_an_explanation_tells_scores_by_rule_every_failing_rule_and_preemption() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/pods/web/shop-1")
        drawer = tab.page.get_by_role("dialog", name="web/shop-1")
        scores = drawer.get_by_role("table", name="Nodes that take the pod")
        await expect(scores.get_by_role("columnheader")).to_have_count(4)
        await expect(scores.locator("tbody tr").first).to_contain_text("19090100")
        await expect(drawer).to_contain_text("also TaintToleration: untolerated taint dedicated")
        await expect(drawer).to_contain_text("90 of them fail by this alone")
        await expect(drawer).to_contain_text("to make room for web/shop-9 (priority 1000)")
        await expect(drawer.get_by_role("region", name="Evicted for it")).to_contain_text("batch/old")
        bars = drawer.get_by_role("table", name="Nodes considered").locator(".meter i")
        widths = [await bars.nth(number).evaluate("bar => parseFloat(bar.style.width)") for number in range(2)]
        assert widths == [100, pytest.approx(100 * 7 / 9.5)]


async def test_nothing_on_a_phone_wraps_letter_by_letter() -> None:
    stub = Stub(text="-of-the-northern-region-with-a-name-of-some-length")
    async with page_of(stub, viewport={"width": 390, "height": 844}, has_touch=True) as tab:
        for route in (*VIEWS, *DRAWERS):
            await show(tab, route)
            assert await letter_wrapping(tab.page) == [], route
        await tab.page.keyboard.press("Escape")
        await show(tab, "#/mesh")
        await tab.page.evaluate("""() => {
            for (const cell of document.querySelectorAll('main td')) cell.style.maxWidth = '20px';
        }""")
        assert await letter_wrapping(tab.page)

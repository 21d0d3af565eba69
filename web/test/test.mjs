// The workbench in a real browser, against the real binary: node test/test.mjs BINARY [PICTURES] [NAME]
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { House, check, equal, launch, until } from "./house.mjs";
import { populate } from "./populate.mjs";

const [binary, , only] = process.argv.slice(2);
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** What a person reads: the entries, without what only this tab knows. */
const conversation = (page) => page.evaluate(() => [...document.querySelectorAll(".scroller .entry, .scroller .approval")].map((entry) => entry.textContent));
const text = (page, selector) => page.locator(selector).first().textContent();
const sees = (page, what) => page.getByText(what).first().waitFor({ timeout: 60_000 });
const live = (page) => page.waitForFunction(() => document.querySelector("[data-testid=link-state]")?.textContent === "Live", null, { timeout: 60_000 });

async function settled(page, house, session, phase) {
  await house.phase(session, phase);
  const word = { idle: "Idle", needs_you: "Needs you" }[phase];
  await page.waitForFunction((word) => document.querySelector(".session-head .phase")?.textContent === word, word, { timeout: 60_000 });
  const { last_seq: last } = await house.call("GET", `/v1/sessions/${session}`);
  await page.waitForFunction((last) => document.querySelector(".pane.chat h2 .mono")?.textContent === `${last} events`, last, { timeout: 60_000 });
}

/** A tab that was there all the time shows what a fresh one shows. */
async function equalsFresh(page, house, browser, path) {
  const fresh = await house.open(browser, path);
  await live(fresh);
  const wanted = await until("a fresh tab shows the conversation", async () => {
    const entries = await conversation(fresh);
    return entries.length > 0 && entries;
  });
  const found = await conversation(page);
  equal(JSON.stringify(found.slice(-wanted.length)), JSON.stringify(wanted), "the tab and a fresh one");
  await fresh.context().close();
}

function clean(page) {
  equal(page.problems.join("\n"), "", "errors, foreign requests and refused scripts of the page");
}

/** The folder of scenarios is part of the configuration of every house here. */
const SCRIPTS = '\n[providers.script]\ndialect = "script"\nscenarios = "."\n';
const ASK = (say) => `[[turn]]\ndo = [{ say = ${JSON.stringify(say)} }, { call = "write", input = { file_path = "a.txt", content = "x" } }]\n\n[[turn]]\ndo = [{ say = "It is settled." }]\n`;
const SLOW = `[[turn]]\nattempts = [{ times = 1, status = 529, type = "overloaded_error" }]\ndo = [{ say = "${"Some words of a long answer that come slowly. ".repeat(12)}", pieces = 60, delay_ms = 60 }, { call = "bash", input = { command = "echo one" } }]\n\n[[turn]]\ndo = [{ think = "hm", pieces = 2 }, { say = "${"And a second answer after the command. ".repeat(6)}", pieces = 30, delay_ms = 60 }]\n`;
const asking = { tools: [{ type: "agent_toolset_20260401", configs: [{ name: "write", permission_policy: { type: "always_ask" } }] }] };

const CASES = {
  async "the first five minutes: start, kill the worker, reload, outage, approve"({ house, browser }) {
    const page = await house.open(browser);
    const doctor = spawnSync(binary, ["doctor", "--json", "--data", house.data], { encoding: "utf8" }).stdout;
    if (!/"driver namespace"[^}]*"ok"|"ok"[^}]*"driver namespace"/.test(doctor)) {
      console.log("      the default sandbox does not work here: the demo runs in the driver process");
      await page.route("**/v1/environments", (route) => route.continue({ postData: JSON.stringify({ name: "demo", config: { type: "cloud", driver: "process" } }) }));
    }
    await page.getByRole("button", { name: "Start the demo session" }).click();
    await page.waitForURL(/\/sessions\/sesn_/);
    const session = new URL(page.url()).pathname.split("/")[2];
    await sees(page, "Now the whole test run");
    // In the middle of its command.
    await page.waitForFunction(() => [...document.querySelectorAll("details.call summary")].some((row) => row.textContent.includes("sleep 3") && /running|open/.test(row.textContent)), null, { timeout: 60_000 });
    await house.killWorker();
    await page.reload();
    await sees(page, "Now the whole test run");
    house.startWorker();
    await settled(page, house, session, "needs_you");
    await sees(page, /overloaded_error/);
    await page.getByRole("button", { name: /^Approve once/ }).click();
    await sees(page, "Done: one operator mended");
    await settled(page, house, session, "idle");
    await equalsFresh(page, house, browser, `/sessions/${session}`);
    equal(await house.call("GET", `/v1/sessions/${session}/files/content?path=RELEASE.md`), "add now adds.\n", "the file that was approved");
    clean(page);
  },

  async "p_17 a fork with two cursors, by mouse and by keyboard"({ house, browser }) {
    await house.script("two", `[[turn]]\ndo = [{ call = "bash", input = { command = "echo first > state.txt" } }]\n[[turn]]\ndo = [{ say = "the first is done" }]\n[[turn]]\ndo = [{ call = "bash", input = { command = "echo second > state.txt" } }]\n[[turn]]\ndo = [{ say = "the second is done" }]\n`);
    const session = await house.session(await house.agent("script/two"), "first wish");
    await house.phase(session, "idle");
    const cut = (await house.call("GET", `/v1/sessions/${session}`)).last_seq;
    await house.call("POST", `/v1/sessions/${session}/events`, { events: [{ type: "user.message", content: [{ type: "text", text: "second wish" }] }] });
    await until("the second turn is over", async () => (await house.call("GET", `/v1/sessions/${session}`)).last_seq > cut + 5 && (await house.call("GET", `/v1/sessions/${session}`)).phase === "idle");
    const page = await house.open(browser, `/sessions/${session}`);
    await live(page);
    await page.getByRole("button", { name: "Fork…" }).click();
    await page.getByLabel("Number of that event").fill(String(cut));
    await sees(page, /1 message|2 messages/);
    await sees(page, "Already happened, and is not undone by a fork");
    check((await text(page, ".fork-preview")).includes("echo second"), "what is not undone is named");
    await page.evaluate(AXE);
    const found = await page.evaluate((tags) => window.axe.run(document, { runOnly: { type: "tag", values: tags } }), TAGS);
    equal(found.violations.map((violation) => violation.id).join(), "", "axe on the dialog");
    await page.getByRole("button", { name: "Fork", exact: true }).click();
    await page.waitForFunction((session) => !location.pathname.endsWith(session), session);
    const fork = new URL(page.url()).pathname.split("/")[2];
    await sees(page, "This session is a fork");
    equal(await house.call("GET", `/v1/sessions/${fork}/files/content?path=state.txt`), "first\n", "files as that event saw them");
    equal((await house.call("GET", `/v1/sessions/${fork}`)).forked_from.at_seq, cut, "where it leaves");
    await page.keyboard.press("F");
    await page.getByLabel("Number of that event").waitFor();
    await page.keyboard.press("Escape");
    equal(await page.locator(".fork-cursors").count(), 0, "Escape makes nothing");
    // Said differently, and begun at once.
    await page.goto(`${house.url}/sessions/${session}?fork=${cut}`);
    await page.waitForFunction((cut) => document.querySelector(".fork-cursors input[type=number]")?.value === String(cut), cut);
    await page.getByLabel(/Say the newest message/).check();
    await page.getByLabel("The message instead of the newest one").fill("another first wish");
    await page.getByRole("button", { name: "Fork", exact: true }).click();
    await page.waitForFunction((session) => !location.pathname.endsWith(session), session);
    await sees(page, "the first is done");
    await sees(page, "another first wish");
    clean(page);
  },

  async "an approval by keyboard alone: one key never decides"({ house, browser }) {
    await house.script("ask", ASK("May I?"));
    const session = await house.session(await house.agent("script/ask", asking), "go");
    await house.phase(session, "needs_you");
    const page = await house.open(browser, `/sessions/${session}`);
    await page.locator(".approval").waitFor();
    const isOnCard = () => page.evaluate(() => document.activeElement?.classList.contains("approval"));
    for (let press = 0; press < 60 && !(await isOnCard()); press += 1) await page.keyboard.press("Tab");
    check(await isOnCard(), "Tab leads to the card");
    await page.keyboard.press("Enter");
    equal((await house.call("GET", `/v1/sessions/${session}`)).phase, "needs_you", "Enter alone decides nothing");
    await page.keyboard.press("a");
    await sees(page, "Press Enter to approve");
    await page.keyboard.press("Enter");
    await settled(page, house, session, "idle");
    await sees(page, "It is settled.");
    clean(page);
  },

  async "a denial carries its reason to the model"({ house, browser }) {
    await house.script("ask", ASK("May I?"));
    const session = await house.session(await house.agent("script/ask", asking), "go");
    await house.phase(session, "needs_you");
    const page = await house.open(browser, "/approvals");
    await page.getByRole("button", { name: /^Deny/ }).first().click();
    await page.getByLabel(/^Reason/).fill("not on a Friday");
    await page.getByRole("button", { name: "Deny", exact: true }).click();
    await house.phase(session, "idle");
    const events = await house.call("GET", `/v1/sessions/${session}/events`);
    equal(events.data.find((event) => event.type === "user.tool_confirmation").deny_message, "not on a Friday", "the reason");
    await sees(page, "Nothing needs you");
    clean(page);
  },

  async "p_19 a reload at any moment shows the same in the end"({ house, browser }) {
    await house.script("slow", SLOW);
    const session = await house.session(await house.agent("script/slow"), "go");
    const page = await house.open(browser, `/sessions/${session}`);
    const watcher = await page.context().newPage();
    await watcher.goto(`${house.url}/sessions/${session}`);
    for (let point = 0; point < 8; point += 1) {
      await page.waitForTimeout(Math.random() * 500);
      await page.reload();
      await page.locator(".session-head h1").waitFor();
    }
    await settled(page, house, session, "idle");
    await settled(watcher, house, session, "idle");
    equal(JSON.stringify(await conversation(page)), JSON.stringify(await conversation(watcher)), "the tab that was reloaded and the one that was not");
    await equalsFresh(page, house, browser, `/sessions/${session}`);
    equal(await page.locator("[data-testid=live]").count(), 0, "open messages at the end");
    clean(page);
  },

  async "the server goes away and comes back"({ house, browser }) {
    await house.script("slow", SLOW);
    const session = await house.session(await house.agent("script/slow"), null);
    const page = await house.open(browser, `/sessions/${session}`);
    await live(page);
    await page.getByLabel("Message to the agent").fill("kept while it is away");
    await house.killServer();
    await page.waitForFunction(() => document.querySelector("[data-testid=link-state]")?.textContent.startsWith("Reconnecting"), null, { timeout: 60_000 });
    await page.getByRole("button", { name: "Send" }).click();
    await sees(page, "The message was not taken; it is still here");
    await house.restartServer();
    await live(page);
    equal(await page.getByLabel("Message to the agent").inputValue(), "kept while it is away", "the draft");
    await page.getByRole("button", { name: "Send" }).click();
    await sees(page, "And a second answer");
    await settled(page, house, session, "idle");
    await equalsFresh(page, house, browser, `/sessions/${session}`);
  },

  async "z_08 text of others is inert"({ house, browser }) {
    const hostile = [
      "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>",
      "[a link](javascript:window.hacked=1) ![x](http://evil.example/x.png) <a href='http://evil.example'>x</a>",
      "\u001b[31mred\u001b[0m \u001b]8;;http://evil.example\u0007link\u001b]8;;\u0007",
      "invoice\u202Etxt.exe",
      "x".repeat(100_000),
    ].join("\n\n");
    const session = await house.session(await house.agent("script/echo", { name: "<b>agent</b>" }), hostile, { title: `<b>title</b>\u202E${"y".repeat(400)}`, metadata: { "<i>": "</script>" } });
    await house.phase(session, "idle");
    for (const width of [1440, 320]) {
      const page = await house.open(browser, `/sessions/${session}`, { viewport: { width, height: 800 } });
      await page.locator(".entry.agent").waitFor();
      const body = await text(page, ".entry.user");
      check(body.includes("<script>"), "markup is shown as it is");
      check(body.includes("⟨U+202E⟩") && !body.includes("\u202E"), "marks of direction are shown");
      check(!body.includes("\u001b"), "escape sequences are taken out");
      check(/characters more/.test(body), "a very long text is folded");
      equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `no overflow at ${width}`);
      equal(await page.evaluate(() => document.querySelectorAll(".scroller img, .scroller script, .scroller a").length), 0, "elements made of text");
      equal(await page.evaluate(() => window.hacked), undefined, "scripts that ran");
      await page.goto(`${house.url}/sessions`);
      await page.locator("table").waitFor();
      equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `no overflow of the list at ${width}`);
      clean(page);
      await page.context().close();
    }
  },

  async "an event of an unknown type is shown as such"({ house, browser }) {
    const session = await house.session(await house.agent("script/echo"), "hello");
    await house.phase(session, "idle");
    const page = await house.open(browser);
    await page.route(/\/events\?/, async (route) => {
      const reply = await route.fetch();
      const body = await reply.json();
      body.data.unshift({ id: "sevt_new", type: "agent.telepathy", seq: 10_000, processed_at: null, thought: "<b>later</b>" });
      await route.fulfill({ response: reply, json: body });
    });
    await page.goto(`${house.url}/sessions/${session}`);
    await sees(page, "agent.telepathy");
    await page.locator("summary", { hasText: "agent.telepathy" }).click();
    await sees(page, '"thought": "<b>later</b>"');
    clean(page);
  },

  async "a session that is deleted meanwhile"({ house, browser }) {
    const session = await house.session(await house.agent("script/echo"), "hello");
    await house.phase(session, "idle");
    const page = await house.open(browser, `/sessions/${session}`);
    await live(page);
    await page.locator(".entry.agent").waitFor();
    await house.call("DELETE", `/v1/sessions/${session}`);
    await sees(page, "This session is not there");
    await page.goto(`${house.url}/sessions/sesn_00000000000000000000000001`);
    await sees(page, "This session is not there");
  },

  async "a login that ends, and links that open once"({ house, browser }) {
    const page = await house.open(browser, "/workers");
    await page.getByRole("heading", { name: "Workers" }).waitFor();
    await page.context().clearCookies();
    await page.reload();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.getByLabel("Or paste an API key").fill("nobody-has-this-key");
    await page.getByRole("button", { name: "Sign in" }).click();
    await sees(page, "this key is not known here");
    await page.getByLabel("Or paste an API key").fill(house.key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Workers" }).waitFor();
    check(!page.url().includes("login="), "the code is taken out of the address");
    const used = (await house.call("POST", "/v1/logins")).url;
    const first = await house.open(browser, "/", { link: used });
    await first.context().close();
    const context = await browser.newContext();
    const second = await context.newPage();
    await second.goto(used);
    await sees(second, "this link was used already");
    await context.close();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
  },

  async "p_10 many tabs share one connection"({ house, browser }) {
    const session = await house.session(await house.agent("script/echo"), "hello");
    const page = await house.open(browser, `/sessions/${session}`);
    const tabs = [page];
    for (let tab = 1; tab < 12; tab += 1) {
      const other = await page.context().newPage();
      await other.goto(`${house.url}/sessions/${session}`);
      tabs.push(other);
    }
    for (const tab of tabs) await live(tab);
    await house.call("POST", `/v1/sessions/${session}/events`, { events: [{ type: "user.message", content: [{ type: "text", text: "to all of you" }] }] });
    for (const tab of tabs) await tab.locator(".entry.agent", { hasText: "to all of you" }).waitFor();
    await until("one stream is open", async () => {
      const metrics = await house.call("GET", "/metrics");
      return /^tenure_\w*streams_open\w*(\{[^}]*\})? 1(\.0)?$/m.test(metrics);
    });
  },

  async "p_1 the first screen is small and comes from here alone"({ house, browser }) {
    const context = await browser.newContext();
    const page = await context.newPage();
    const network = await context.newCDPSession(page);
    await network.send("Network.enable");
    let bytes = 0;
    const hosts = new Set();
    network.on("Network.responseReceived", ({ response }) => hosts.add(new URL(response.url).host));
    network.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
    await page.goto((await house.call("POST", "/v1/logins")).url);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await live(page).catch(() => undefined);
    check(bytes > 10_000 && bytes < 200_000, `the first screen takes ${bytes} bytes`);
    equal([...hosts].join(), new URL(house.url).host, "hosts that were asked");
    await context.close();
  },

  async "what the model saw is one press away"({ house, browser }) {
    const session = await house.session(await house.agent("script/echo"), "a question of mine");
    await house.phase(session, "idle");
    const page = await house.open(browser, `/sessions/${session}`);
    await page.getByRole("button", { name: "What the model saw" }).first().click();
    await page.waitForURL(/panel=context/);
    await page.locator(".side-body", { hasText: "a question of mine" }).waitFor();
    clean(page);
  },

  async "without a shared worker the page is live all the same"({ house, browser }) {
    const session = await house.session(await house.agent("script/echo"), "hello");
    const page = await house.open(browser);
    await page.addInitScript(() => delete globalThis.SharedWorker);
    await page.goto(`${house.url}/sessions/${session}`);
    await live(page);
    await page.getByLabel("Message to the agent").fill("alone");
    await page.keyboard.press("Enter");
    await page.locator(".entry.agent", { hasText: "alone" }).waitFor();
    clean(page);
  },

  async "pause stops everything, and going on catches up"({ house, browser }) {
    const session = await house.session(await house.agent("script/echo"), "hello");
    await house.phase(session, "idle");
    const page = await house.open(browser, `/sessions/${session}`);
    await live(page);
    await page.locator("footer").getByRole("button", { name: "Pause" }).click();
    await sees(page, "Paused by you");
    const before = JSON.stringify(await conversation(page));
    await house.call("POST", `/v1/sessions/${session}/events`, { events: [{ type: "user.message", content: [{ type: "text", text: "while you looked away" }] }] });
    await house.phase(session, "idle");
    equal(JSON.stringify(await conversation(page)), before, "a paused page");
    await page.getByRole("button", { name: "Go on" }).click();
    await page.locator(".entry.agent", { hasText: "while you looked away" }).waitFor();
  },

  async "the list: queries as addresses, and an action on all that match"({ house, browser }) {
    const echo = await house.agent("script/echo");
    for (let count = 0; count < 5; count += 1) await house.session(echo, null, { title: `bulk ${count}` });
    await house.session(echo, null, { title: "another" });
    const page = await house.open(browser, "/sessions");
    await page.getByLabel("Query").fill("bulk phase:idle");
    await page.keyboard.press("Enter");
    await page.waitForURL(/q=bulk/);
    await sees(page, "5 sessions shown");
    await page.getByRole("button", { name: "Pause all…" }).click();
    await sees(page, "Pause 5 sessions?");
    await page.getByRole("button", { name: "Pause 5", exact: true }).click();
    await sees(page, "5 done");
    const paused = await house.call("GET", "/v1/sessions?q=phase:paused");
    equal(paused.data.length, 5, "sessions that are paused");
    await page.goto(`${house.url}/sessions?q=colour:red`);
    await sees(page, "there is no field");
    clean(page);
  },

  async "p_12 no violations of accessibility on any page"({ house, browser }) {
    const { needs, done } = await populate(house);
    await house.script("ask", ASK("May I?"));
    const asks = await house.session(await house.agent("script/ask", asking), "go", { title: "Asks" });
    await house.phase(asks, "needs_you");
    const paths = ["/", "/sessions", "/approvals", "/conditions", "/workers", "/health", `/sessions/${needs}?timeline=list`, `/sessions/${asks}`, `/sessions/${done}?panel=files`, `/sessions/${done}?panel=details`];
    const found = [];
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1440, 390, 320]) {
        const page = await house.open(browser, "/", { colorScheme, viewport: { width, height: 844 }, bypassCSP: true });
        for (const path of paths) {
          await page.goto(house.url + path);
          await page.locator("h1").first().waitFor();
          await page.waitForFunction(() => !document.querySelector(".loading"), null, { timeout: 60_000 });
          await page.evaluate(AXE);
          const { violations } = await page.evaluate((tags) => window.axe.run(document, { runOnly: { type: "tag", values: tags } }), TAGS);
          for (const violation of violations) found.push(`${colorScheme} ${width} ${path.replace(/sesn_\w+/, "…")}: ${violation.id} ${violation.nodes[0].target} ${violation.nodes[0].failureSummary?.split("\n")[1] ?? ""}`);
          if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) found.push(`${width} ${path}: wider than the window`);
        }
        await page.context().close();
      }
    }
    equal([...new Set(found)].join("\n"), "", "violations");
  },
};

let failed = 0;
const began = Date.now();
for (const [name, run] of Object.entries(CASES)) {
  if (only && !name.includes(only)) continue;
  const house = await House.build(binary, { config: SCRIPTS });
  const browser = await launch();
  const start = Date.now();
  try {
    await run({ house, browser });
    console.log(`ok    ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}\n      ${String(error.stack ?? error).replaceAll("\n", "\n      ")}`);
    for (const child of [house.server, house.worker]) if (child?.errors) console.log(child.errors.split("\n").slice(-8).join("\n"));
  } finally {
    await browser.close();
    await house.stop();
  }
}
console.log(`${failed === 0 ? "all held" : `${failed} failed`} in ${((Date.now() - began) / 1000).toFixed(0)} s`);
process.exit(failed === 0 ? 0 : 1);

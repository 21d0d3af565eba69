// A real server with a real worker in a folder of its own, and a real browser.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

/** How long something that must happen may take. */
export const PATIENCE = 60_000;

const BROWSERS = [process.env.TENURE_BROWSER, "/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/google-chrome"];

export function browserPath() {
  return BROWSERS.find((path) => path && existsSync(path));
}

export async function launch() {
  return chromium.launch({ executablePath: browserPath(), args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"] });
}

/** Settings of the person who tests are for their own server. */
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TENURE_")));

function start(binary, args, folder) {
  const child = spawn(binary, args, { cwd: folder, env: { ...environment, HOME: folder }, stdio: ["pipe", "pipe", "pipe"] });
  child.errors = "";
  child.stderr.on("data", (data) => (child.errors = (child.errors + data).slice(-20_000)));
  return child;
}

async function ready(child) {
  let out = "";
  for await (const data of child.stdout) {
    out += data;
    const line = out.split("\n").find((line) => line.includes('"ready"'));
    if (line) {
      child.stdout.resume();
      return JSON.parse(line);
    }
  }
  throw new Error(`the server ended before it was ready: ${child.errors}`);
}

export class House {
  static async build(binary, { config = "" } = {}) {
    const house = new House();
    house.binary = binary;
    house.folder = mkdtempSync(join(tmpdir(), "tenure-ui-"));
    house.data = join(house.folder, "data");
    house.config = config;
    await house.startServer("127.0.0.1:0");
    house.startWorker();
    return house;
  }

  async startServer(listen) {
    writeFileSync(join(this.folder, "tenure.toml"), `[node]\nheartbeat_seconds = 1\ndead_after_seconds = 4\n\n[worker]\ngrace_seconds = 2\n${this.config}`);
    this.server = start(this.binary, ["serve", "--json", "--data", this.data, "--listen", listen], this.folder);
    const line = await ready(this.server);
    this.url = line.url;
    this.link = line.workbench;
    this.key = readFileSync(join(this.data, "api.key"), "utf8").trim();
  }

  startWorker() {
    this.worker = start(this.binary, ["worker", "--data", this.data], this.folder);
    this.worker.stdout.resume();
  }

  async killWorker() {
    await kill(this.worker, "SIGKILL");
  }

  async killServer() {
    await kill(this.server, "SIGKILL");
  }

  async restartServer() {
    await this.startServer(new URL(this.url).host);
  }

  async stop() {
    await kill(this.worker, "SIGKILL");
    await kill(this.server, "SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }

  async call(method, path, body, how = {}) {
    const response = await fetch(this.url + path, {
      method,
      headers: { "x-api-key": this.key, ...(typeof body === "string" || body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok && !how.mayFail) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }

  async agent(model, more = {}) {
    return (await this.call("POST", "/v1/agents", { name: model.split("/")[1], model, tools: [{ type: "agent_toolset_20260401" }, { type: "tenure_toolset" }], ...more })).id;
  }

  async environment() {
    this.environmentId ??= (await this.call("POST", "/v1/environments", { name: "here", config: { type: "cloud", driver: process.env.UI_TEST_DRIVER ?? "process" } })).id;
    return this.environmentId;
  }

  async session(agent, message, more = {}) {
    const events = message === null ? {} : { initial_events: [{ type: "user.message", content: [{ type: "text", text: message }] }] };
    return (await this.call("POST", "/v1/sessions", { agent, environment_id: await this.environment(), ...events, ...more })).id;
  }

  /** Waits until a session is in one of the phases. */
  async phase(session, ...phases) {
    return until(`${session} is ${phases}`, async () => {
      const { phase } = await this.call("GET", `/v1/sessions/${session}`);
      return phases.includes(phase) && phase;
    });
  }

  async script(name, toml) {
    writeFileSync(join(this.folder, `${name}.toml`), toml);
  }

  async open(browser, path = "/", how = {}) {
    const { link } = how;
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", timezoneId: "UTC", ...how });
    // Files that are newer than the binary, while the pages are worked on.
    const dist = how.dist ?? process.env.UI_DIST;
    if (dist) await serveFrom(context, dist, this.url);
    const page = await context.newPage();
    page.problems = [];
    page.on("pageerror", (error) => page.problems.push(String(error)));
    page.on("console", (message) => /Content Security Policy|Refused to/.test(message.text()) && page.problems.push(message.text()));
    page.on("request", (request) => {
      const { origin, protocol } = new URL(request.url());
      if (!["blob:", "data:"].includes(protocol) && origin !== new URL(this.url).origin) page.problems.push(`a request to ${origin}`);
    });
    await page.goto(link ?? (await this.call("POST", "/v1/logins")).url);
    await page.waitForSelector("footer");
    if (path !== "/") await page.goto(this.url + path);
    return page;
  }
}

export async function until(what, look, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export function check(is, what) {
  if (!is) throw new Error(`not so: ${what}`);
}

export function equal(found, wanted, what) {
  if (found !== wanted) throw new Error(`${what}:\n  found  ${JSON.stringify(found)}\n  wanted ${JSON.stringify(wanted)}`);
}

const KINDS = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
async function serveFrom(context, folder, url) {
  await context.addInitScript(() => delete globalThis.SharedWorker);
  await context.route((address) => address.origin === new URL(url).origin && !/^\/(v1|workbench|healthz|readyz)/.test(address.pathname), (route) => {
    const path = new URL(route.request().url()).pathname;
    const file = existsSync(join(folder, path)) && path !== "/" ? path : "/index.html";
    return route.fulfill({ body: readFileSync(join(folder, file)), contentType: KINDS[file.split(".").pop()] });
  });
}

async function kill(child, signal) {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((done) => child.once("exit", done));
  child.kill(signal);
  await gone;
}

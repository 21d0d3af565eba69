/** A tenure that runs as a real process, and the official client that talks to it. */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";

const SCENARIOS = resolve(import.meta.dirname, "../../python/scenarios");

const CONFIG = `
[providers.script]
dialect = "script"
scenarios = ${JSON.stringify(SCENARIOS)}
`;

export interface Tenure {
  client: Anthropic;
  stop(): Promise<void>;
}

/** Starts a server with its worker in a data folder of its own. */
export async function startTenure(): Promise<Tenure> {
  const folder = await mkdtemp(join(tmpdir(), "tenure-clients-"));
  const config = join(folder, "tenure.toml");
  const data = join(folder, "data");
  await writeFile(config, CONFIG);
  const words = ["dev", "--json", "--data", data, "--config", config, "--listen", "127.0.0.1:0"];
  const server = spawn(binary(), words, { cwd: folder, env: settings(), stdio: ["ignore", "pipe", "inherit"] });
  const address = await addressOf(server);
  // The port is open a little before the server serves; this returns with the first answer.
  await fetch(`http://${address}/healthz`);
  const apiKey = (await readFile(join(data, "api.key"), "utf8")).trim();
  return {
    client: new Anthropic({ baseURL: `http://${address}`, apiKey }),
    async stop() {
      if (server.exitCode === null) {
        const ended = once(server, "exit");
        server.kill("SIGTERM");
        await ended;
      }
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function binary(): string {
  const path = process.env["TENURE_BINARY"];
  if (path === undefined) {
    throw new Error("TENURE_BINARY is not set; start the tests with run.sh");
  }
  return path;
}

/** The environment without what would reach past the test's own configuration. */
function settings(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(TENURE|ANTHROPIC)_/.test(name));
  return Object.fromEntries(kept);
}

/** HOST:PORT in the line that a server prints when it listens. */
async function addressOf(server: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: server.stdout! })) {
    if (!line.startsWith("{")) continue;
    const said = JSON.parse(line) as Record<string, string | undefined>;
    const text = said["address"] ?? said["listen"] ?? said["url"];
    if (text !== undefined) {
      server.stdout!.resume();
      return text.replace(/^http:\/\//, "").replace(/\/$/, "");
    }
  }
  throw new Error("the server ended before it said where it listens");
}

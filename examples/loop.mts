// An agent loop of your own in TypeScript, with nothing but what Node brings along; see loop.py for the same in Python.
//
//     TENURE_API_KEY=… node loop.mjs counters ./out      after: tsc loop.mts --target es2022 --module nodenext
//
// It counts as far as the user asks, one durable step after the other. Kill it at any moment and start it again.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

type Event = { id: string; type: string; content?: { text: string }[]; input?: { number: number } };
type Lease = {
  id: string; held: boolean; due: "model" | "tools" | "nothing"; seq: number;
  calls: { tool_use_id: string }[]; events: Event[];
};

const url = process.env["TENURE_URL"] ?? "http://127.0.0.1:7373";
const key = process.env["TENURE_API_KEY"] ?? "";
const leaseMs = Number(process.env["LEASE_MS"] ?? 30000); // how long a killed loop keeps others waiting

/** The lease is somebody else's now: drop what was not committed. */
class Lost extends Error {}

async function post<T>(path: string, body: object): Promise<T> {
  const reply = await fetch(url + path, { method: "POST", headers: { "x-api-key": key }, body: JSON.stringify(body) });
  const json = await reply.json();
  if (reply.ok) return json as T;
  const { code, message } = (json as { error: { code: string; message: string } }).error;
  throw code === "lease_lost" || code === "seq_conflict" ? new Lost(message) : new Error(message);
}

/** What comes next, from the log alone: a number to write, or none when it has counted far enough. */
function think(events: Event[]): number | undefined {
  let [asked, done] = [0, 0];
  for (const event of events) {
    if (event.type === "user.message") [asked, done] = [Number(event.content?.[0]?.text), 0];
    if (event.type === "agent.tool_result") done += 1;
  }
  return done < asked ? done + 1 : undefined;
}

async function work(lease: Lease, folder: string): Promise<void> {
  const path = `/v1/leases/${lease.id}`;
  const events = lease.events;
  // A long step must not lose its lease.
  const renewal = setInterval(() => void post(`${path}/renew`, { lease_ms: leaseMs }).catch(() => {}), leaseMs / 3);
  try {
    while (lease.held) {
      const number = think(events);
      let [then, step]: [string, object] = ["keep", {}];
      const call = lease.calls[0]?.tool_use_id;
      if (lease.due === "tools") {
        // The intent is committed; a step that was killed here is done again.
        const wanted = events.find((event) => event.id === call)?.input?.number;
        writeFileSync(join(folder, `${wanted}.txt`), `${wanted}\n`);
        step = { type: "agent.tool_result", tool_use_id: call, content: "written" };
      } else if (number !== undefined) {
        step = { type: "agent.tool_use", name: "write", input: { number }, effect: "idempotent" };
      } else {
        [then, step] = ["idle", { type: "agent.message", content: "I am done." }];
      }
      lease = await post<Lease>(`${path}/checkpoint`, { seq: lease.seq, events: [step], then, lease_ms: leaseMs });
      events.push(...lease.events);
    }
  } finally {
    clearInterval(renewal);
  }
}

const [queue, folder] = process.argv.slice(2) as [string, string];
mkdirSync(folder, { recursive: true });
for (;;) {
  const wanted = { worker: "loop.mts", wait_ms: 20000, lease_ms: leaseMs, tail: 1000 };
  for (const lease of (await post<{ data: Lease[] }>(`/v1/queues/${queue}/leases`, wanted)).data) {
    await work(lease, folder).catch((error: unknown) => {
      if (!(error instanceof Lost)) throw error;
    });
  }
}

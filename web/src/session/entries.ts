// Rows of the log as what a person reads: a call with its result is one entry, costs belong to a step,
// and what this page does not know is shown as such.
import type { WireEvent } from "../api/client";

export type Step = { model: string; attempts: number; input: number; output: number; cost: number | null; priced: boolean };
export type Call = { use: WireEvent; result: WireEvent | null; decision: WireEvent | null; started: boolean };
export type Entry =
  | { kind: "message"; id: string; seq: number | null; who: "user" | "agent" | "system"; text: string; media: number; at: string | null; step: number | null; queued: boolean; cost: Step | null }
  | { kind: "thinking"; id: string; seq: number | null; text: string; at: string | null; step: number | null }
  | { kind: "call"; id: string; seq: number | null; call: Call; at: string | null; step: number | null; cost: Step | null }
  | { kind: "result"; id: string; seq: number | null; result: WireEvent; at: string | null }
  | { kind: "note"; id: string; seq: number | null; tone: "plain" | "wait" | "bad" | "good"; text: string; detail: string; at: string | null }
  | { kind: "unknown"; id: string; seq: number | null; event: WireEvent; at: string | null };

export const text = (value: unknown): string => (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));

/** The text of content blocks, and how many of them are something else. */
export function blocks(content: unknown): { text: string; media: number } {
  if (typeof content === "string") return { text: content, media: 0 };
  if (!Array.isArray(content)) return { text: "", media: 0 };
  const parts = content as { type?: string; text?: unknown }[];
  const said = parts.filter((part) => part?.type === "text").map((part) => text(part.text));
  return { text: said.join("\n"), media: parts.length - said.length };
}

/** Types that only carry what is shown elsewhere. */
const SILENT = new Set(["session.status_running", "session.status_rescheduled", "session.usage", "span.model_request_start", "span.model_request_end", "session.tool_started", "session.wait_resolved"]);

export function entriesOf(events: WireEvent[], queued: WireEvent[]): Entry[] {
  const results = new Map<string, WireEvent>();
  const decisions = new Map<string, WireEvent>();
  const started = new Set<string>();
  const steps = new Map<number, Step>();
  const uses = new Set<string>();
  for (const event of events) {
    switch (event.type) {
      case "agent.tool_use":
      case "agent.custom_tool_use":
        uses.add(event.id);
        break;
      case "agent.tool_result":
        results.set(text(event.tool_use_id), event);
        break;
      case "user.custom_tool_result":
        results.set(text(event.custom_tool_use_id), event);
        break;
      case "user.tool_confirmation":
        decisions.set(text(event.tool_use_id), event);
        break;
      case "session.tool_started":
        started.add(text(event.tool_use_id));
        break;
      case "span.model_request_start":
      case "span.model_request_end":
        countStep(steps, event);
        break;
    }
  }
  const priced = new Set<number>();
  const costOf = (event: WireEvent): Step | null => {
    if (event.step == null || priced.has(event.step)) return null;
    priced.add(event.step);
    return steps.get(event.step) ?? null;
  };
  const entries: Entry[] = [];
  for (const event of [...events, ...queued]) {
    const entry = entryOf(event, results, decisions, started, uses, costOf);
    if (entry) entries.push(entry);
  }
  return entries;
}

function countStep(steps: Map<number, Step>, event: WireEvent): void {
  if (event.step == null) return;
  const step = steps.get(event.step) ?? { model: "", attempts: 0, input: 0, output: 0, cost: null, priced: true };
  step.model = text(event.model) || step.model;
  if (event.type === "span.model_request_start") step.attempts += 1;
  else {
    const usage = (event.model_usage ?? {}) as Record<string, number>;
    step.input += (usage.input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);
    step.output += usage.output_tokens ?? 0;
    if (typeof event.cost_usd === "number") step.cost = (step.cost ?? 0) + event.cost_usd;
    else if ((usage.output_tokens ?? 0) > 0) step.priced = false;
  }
  steps.set(event.step, step);
}

function entryOf(
  event: WireEvent,
  results: Map<string, WireEvent>,
  decisions: Map<string, WireEvent>,
  started: Set<string>,
  uses: Set<string>,
  costOf: (event: WireEvent) => Step | null,
): Entry | null {
  const base = { id: event.id, seq: event.seq ?? null, at: event.processed_at ?? null };
  const step = event.step ?? null;
  const note = (tone: "plain" | "wait" | "bad" | "good", said: string, detail = ""): Entry => ({ kind: "note", ...base, tone, text: said, detail });
  if (SILENT.has(event.type)) return null;
  switch (event.type) {
    case "user.message":
    case "system.message":
    case "agent.message": {
      const who = event.type === "user.message" ? "user" : event.type === "agent.message" ? "agent" : "system";
      return { kind: "message", ...base, who, ...blocks(event.content), step, queued: event.seq == null, cost: who === "agent" ? costOf(event) : null };
    }
    case "agent.thinking":
      return { kind: "thinking", ...base, text: text(event.text), step };
    case "agent.tool_use":
    case "agent.custom_tool_use": {
      const call = { use: event, result: results.get(event.id) ?? null, decision: decisions.get(event.id) ?? null, started: started.has(event.id) };
      return { kind: "call", ...base, call, step, cost: costOf(event) };
    }
    case "agent.tool_result":
      return uses.has(text(event.tool_use_id)) ? null : { kind: "result", ...base, result: event };
    case "user.custom_tool_result":
      return uses.has(text(event.custom_tool_use_id)) ? null : { kind: "result", ...base, result: event };
    case "user.tool_confirmation":
      return uses.has(text(event.tool_use_id)) ? null : note("plain", `A person said ${text(event.result)} to an earlier call`, text(event.deny_message));
    case "user.interrupt":
      return note("plain", base.seq === null ? "Interrupt is queued" : "Interrupted by a person");
    case "session.status_idle":
      return idleNote(event, note);
    case "session.status_terminated": {
      const end = (event.end ?? {}) as { type?: string; reason?: string };
      return note(end.type === "failed" ? "bad" : "good", `Session ended: ${end.type ?? "ended"}`, text(end.reason));
    }
    case "session.error": {
      const error = (event.error ?? {}) as { message?: string; type?: string };
      return note("bad", `Upstream: ${text(event.class).replaceAll("_", " ") || "error"}`, text(error.message));
    }
    case "session.condition":
      return note("wait", `Shared condition: ${text(event.class).replaceAll("_", " ")} of ${text(event.model)}`, text(event.message));
    case "session.wait_started": {
      const wait = (event.wait ?? {}) as { kind?: string; until?: string | null; attempt?: number };
      if (wait.kind === "action") return null;
      const attempt = wait.attempt ? `, attempt ${wait.attempt}` : "";
      return note("wait", `Waits: ${text(wait.kind).replaceAll("_", " ")}${attempt}. No compute is held.`, wait.until ? `until ${wait.until}` : "");
    }
    case "session.callback_created":
      return note("plain", `Callback ${text(event.label)} was made`, `expires ${text(event.expires_at)}`);
    case "session.callback_received":
      return note("good", "The callback was answered", text(event.body));
    case "session.budget_updated":
      return note("plain", "Limits were changed", text(event.limits));
    case "session.updated":
      return note("plain", updatedText(event));
    case "environment.started": {
      const missing = Array.isArray(event.missing) ? (event.missing as string[]) : [];
      return note("plain", `Sandbox started: ${text(event.driver)}`, missing.length ? `not enforced here: ${missing.join(", ")}` : "");
    }
    case "environment.reset":
      return note("bad", "Files went back", text(event.reason));
    case "agent.thread_context_compacted":
      return note("plain", "Older messages were summarised for the model", text(event.summary));
    case "session.snapshot_created":
      return note("plain", "Snapshot of the files", text(event.snapshot_id));
    case "session.forked":
      return note("plain", "This session is a fork", `${text(event.from_session_id)} up to event ${text(event.at_seq)}`);
    default:
      return { kind: "unknown", ...base, event };
  }
}

function idleNote(event: WireEvent, note: (tone: "plain" | "wait" | "bad" | "good", said: string, detail?: string) => Entry): Entry | null {
  const stop = (event.stop_reason ?? {}) as { type?: string };
  switch (stop.type) {
    case "end_turn":
      return note("good", "Turn ended");
    case "requires_action":
      return null;
    case "retries_exhausted":
      return note("wait", "Retries are used up. Everything is kept.");
    case "budget_reached":
      return note("wait", "A limit is reached. Everything is kept.");
    case "refusal":
      return note("bad", "The model refused");
    default:
      return note("plain", `Idle: ${stop.type ?? "unknown reason"}`);
  }
}

function updatedText(event: WireEvent): string {
  switch (event.update) {
    case "paused":
      return "Paused by a person";
    case "resumed":
      return "Resumed by a person";
    case "title":
      return `Title is now: ${text(event.title)}`;
    case "metadata":
      return "Metadata was changed";
    default:
      return `Changed: ${text(event.update)}`;
  }
}

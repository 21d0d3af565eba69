/** A client creates an agent, an environment and a session, sends messages and streams the answers. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { startTenure, type Tenure } from "./running.js";

type Client = Anthropic;
type StreamEvent = Anthropic.Beta.Sessions.BetaManagedAgentsStreamSessionEvents;
type Sent = Parameters<Client["beta"]["sessions"]["events"]["send"]>[1]["events"];
type Tools = NonNullable<Parameters<Client["beta"]["agents"]["create"]>[0]["tools"]>;

/** Milliseconds after which a test is ended; no measurement, but a lost event must not hang the run. */
const MOST_MILLIS = 90_000;

const ANSWER = "Hello from a scripted model, in several pieces.";

let tenure: Tenure;

before(async () => {
  tenure = await startTenure();
});

after(async () => {
  await tenure.stop();
});

async function newSession(scenario: string, tools: Tools = []): Promise<string> {
  const { agents, environments, sessions } = tenure.client.beta;
  const agent = await agents.create({ name: scenario, model: `script/${scenario}`, tools });
  const environment = await environments.create({ name: scenario, config: { type: "cloud" } });
  const session = await sessions.create({ agent: agent.id, environment_id: environment.id });
  assert.equal(session.status, "idle");
  return session.id;
}

function message(text: string): Sent {
  return [{ type: "user.message", content: [{ type: "text", text }] }];
}

/** Opens the stream, sends, and gives everything up to the end of the turn. */
async function turn(session: string, events: Sent): Promise<StreamEvent[]> {
  const { events: api } = tenure.client.beta.sessions;
  const stream = await api.stream(session, { event_deltas: ["agent.message"] });
  await api.send(session, { events });
  const seen: StreamEvent[] = [];
  for await (const event of stream) {
    seen.push(event);
    if (event.type === "session.status_idle") return seen;
  }
  assert.fail(`the stream ended after ${seen.map((event) => event.type).join(", ")}`);
}

function ofType<T extends StreamEvent["type"]>(events: StreamEvent[], type: T): Extract<StreamEvent, { type: T }>[] {
  return events.filter((event): event is Extract<StreamEvent, { type: T }> => event.type === type);
}

/** What a stream showed, without previews and without inputs that still waited. */
function durable(events: StreamEvent[]): unknown[] {
  return events.filter((event) => "processed_at" in event && event.processed_at !== null);
}

function said(events: StreamEvent[]): string[] {
  return ofType(events, "agent.message").map((event) => event.content.map((block) => ("text" in block ? block.text : "")).join(""));
}

function stopOf(events: StreamEvent[]) {
  const [idle] = ofType(events, "session.status_idle");
  assert.ok(idle);
  return idle.stop_reason;
}

test("a turn streams to idle with previews, and the list equals the stream without them", { timeout: MOST_MILLIS }, async () => {
  const session = await newSession("greeting");
  const first = await turn(session, message("hello"));

  const [answer] = ofType(first, "agent.message");
  const deltas = ofType(first, "event_delta");
  assert.ok(answer);
  assert.ok(deltas.length > 1);
  assert.deepEqual(new Set(deltas.map((event) => event.event_id)), new Set([answer.id]));
  assert.equal(deltas.map((event) => event.delta.content.text).join(""), ANSWER);
  assert.deepEqual(said(first), [ANSWER]);
  assert.equal(stopOf(first).type, "end_turn");

  const second = await turn(session, message("and once more"));
  const listed: unknown[] = [];
  for await (const event of tenure.client.beta.sessions.events.list(session, { limit: 5 })) listed.push(event);
  assert.deepEqual(listed, durable([...first, ...second]));
});

test("a command runs when it is allowed and does not when it is denied", { timeout: MOST_MILLIS }, async () => {
  const tools: Tools = [
    { type: "agent_toolset_20260401", configs: [{ name: "bash", permission_policy: { type: "always_ask" } }] },
  ];
  for (const result of ["allow", "deny"] as const) {
    const session = await newSession("shell", tools);
    const asked = await turn(session, message("go"));
    const [call] = ofType(asked, "agent.tool_use");
    assert.ok(call);
    assert.deepEqual({ ...stopOf(asked) }, { type: "requires_action", event_ids: [call.id] });

    const answered = await turn(session, [{ type: "user.tool_confirmation", tool_use_id: call.id, result }]);
    const [outcome] = ofType(answered, "agent.tool_result");
    assert.equal(outcome?.tool_use_id, call.id);
    assert.equal(outcome?.is_error, result === "deny");
    assert.equal(said(answered).join().includes("the command ran"), result === "allow");
    assert.equal(stopOf(answered).type, "end_turn");
  }
});

test("the client answers a custom tool", { timeout: MOST_MILLIS }, async () => {
  const session = await newSession("custom-tool", [
    { type: "custom", name: "get_weather", description: "Says what the weather is like.", input_schema: { type: "object" } },
  ]);
  const asked = await turn(session, message("how is the weather?"));
  const [call] = ofType(asked, "agent.custom_tool_use");
  assert.ok(call);
  assert.deepEqual(call.input, { city: "Utrecht" });
  const answered = await turn(session, [
    { type: "user.custom_tool_result", custom_tool_use_id: call.id, content: [{ type: "text", text: "light rain" }] },
  ]);
  assert.deepEqual(said(answered), ["The tool answered: light rain"]);
});

test("an interrupt ends the turn and the session goes on", { timeout: MOST_MILLIS }, async () => {
  const session = await newSession("silent-after-start");
  const { events: api } = tenure.client.beta.sessions;
  const stream = await api.stream(session, { event_deltas: ["agent.message"] });
  await api.send(session, { events: message("never stop") });
  let interrupted = false;
  for await (const event of stream) {
    if (event.type === "event_delta" && !interrupted) {
      interrupted = true;
      await api.send(session, { events: [{ type: "user.interrupt" }] });
    }
    if (event.type === "session.status_idle") break;
  }
  assert.ok(interrupted);
  assert.ok(said(await turn(session, message("still there?"))).at(-1)?.includes("still there?"));
});

test("a mistake arrives as the error class of the client", { timeout: MOST_MILLIS }, async () => {
  const nobody = "sesn_00000000000000000000000000000000";
  await assert.rejects(tenure.client.beta.sessions.retrieve(nobody), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.ok(error.requestID);
    return true;
  });
});

// What needs a person first, then how the fleet is.
import { useState } from "react";
import { Button } from "react-aria-components";
import { post, type Condition, type Page, type Session } from "../api/client";
import { useCaller } from "../caller";
import { Ago, Copy, Empty, Loading, PHASES, PhaseMark, Problem } from "../parts/parts";
import { count } from "../parts/format";
import { useResource } from "../parts/resource";
import { inertLine } from "../parts/text";
import { Link, go } from "../router";
import { SessionRows } from "./Sessions";

export type Fleet = {
  phases: Record<string, number>;
  queued_since: string | null;
  nodes: { live: number; dead: number; leases: number };
  conditions: number;
};

export function Overview() {
  const fleet = useResource<Fleet>("/v1/fleet", { fleet: true, everyMs: 15_000 });
  const needs = useResource<Page<Session>>("/v1/sessions?phases[]=needs_you&limit=20", { fleet: true });
  const busy = useResource<Page<Session>>("/v1/sessions?phases[]=working&phases[]=queued&phases[]=backing_off&phases[]=waiting&limit=12", { fleet: true });
  const conditions = useResource<Page<Condition>>("/v1/conditions", { fleet: true, everyMs: 15_000 });
  const total = Object.values(fleet.data?.phases ?? {}).reduce((sum, count) => sum + count, 0);
  if (fleet.data && total === 0) return <FirstSteps />;
  return (
    <main className="page" id="main">
      <h1>Overview</h1>
      {Boolean(fleet.error) && <Problem error={fleet.error} what="The overview cannot be read" retry={fleet.reload} />}
      <section aria-label="Needs you" className="card">
        <h2>Needs you</h2>
        {needs.loading && <Loading />}
        {needs.data && needs.data.data.length === 0 && <p className="meta pad">Nothing needs you.</p>}
        {needs.data && needs.data.data.length > 0 && <SessionRows sessions={needs.data.data} label="Sessions that need you" />}
        {needs.data?.next_page && <p className="pad"><Link to="/sessions?q=phase:needs_you">All that need you</Link></p>}
      </section>
      {fleet.loading && <Loading />}
      {fleet.data && (
        <ul className="tiles" aria-label="Sessions by phase">
          {PHASES.filter((phase) => (fleet.data?.phases[phase] ?? 0) > 0).map((phase) => (
            <li key={phase}>
              <Link to={`/sessions?q=phase:${phase}`}>
                <strong className="mono">{count(fleet.data?.phases[phase] ?? 0)}</strong>
                <PhaseMark phase={phase} />
              </Link>
            </li>
          ))}
        </ul>
      )}
      {fleet.data && (
        <dl className="facts wide">
          <div><dt>Workers</dt><dd><Link to="/workers">{count(fleet.data.nodes.live)} alive</Link>, {count(fleet.data.nodes.leases)} leases held{fleet.data.nodes.live === 0 ? ": nothing is advanced until one starts" : ""}</dd></div>
          <div><dt>Oldest queued</dt><dd>{fleet.data.queued_since ? <Ago at={fleet.data.queued_since} /> : "nothing is queued"}</dd></div>
          <div><dt>Upstreams</dt><dd><Link to="/conditions">{conditions.data?.data.length ? `${conditions.data.data.length} refuse` : "none refuses"}</Link></dd></div>
        </dl>
      )}
      {conditions.data?.data.map((condition) => <p key={condition.id} className="note wait">{inertLine(condition.text ?? "")}</p>)}
      <section aria-label="In progress" className="card">
        <h2>In progress</h2>
        {busy.loading && <Loading />}
        {busy.data && busy.data.data.length === 0 && <p className="meta pad">Nothing is in progress.</p>}
        {busy.data && busy.data.data.length > 0 && <SessionRows sessions={busy.data.data} label="Sessions in progress" />}
      </section>
    </main>
  );
}

const COMMANDS = ["tenure demo", 'tenure run --model script/echo "hello"', "tenure ps"];

/** A scripted agent: it needs no key and no network. */
const DEMO = {
  agent: { name: "demo-desk", model: "script/demo-desk", tools: [{ type: "agent_toolset_20260401", configs: [{ name: "bash", effect: "idempotent" }, { name: "write", permission_policy: { type: "always_ask" } }] }, { type: "tenure_toolset" }] },
  environment: { name: "demo", config: { type: "cloud" } },
  message: "Make a small project with a failing test, mend it, and write a release note.",
};

function FirstSteps() {
  const caller = useCaller();
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    setError(null);
    try {
      const agent = await post<{ id: string }>("/v1/agents", DEMO.agent);
      const environment = await post<{ id: string }>("/v1/environments", DEMO.environment);
      const session = await post<{ id: string }>("/v1/sessions", {
        agent: agent.id,
        environment_id: environment.id,
        title: "Mend the failing test",
        initial_events: [{ type: "user.message", content: [{ type: "text", text: DEMO.message }] }],
      });
      go(`/sessions/${session.id}`);
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  return (
    <main className="page" id="main">
      <h1>Overview</h1>
      <Empty title="No session yet">
        <p>A scripted model plays the demo: no key, no network.</p>
        {caller.scope !== "read" && <Button className="button primary" isDisabled={busy} onPress={() => void start()}>Start the demo session</Button>}
        {Boolean(error) && <Problem error={error} what="The demo did not start" />}
        <p className="meta">Or in a terminal:</p>
        <ul className="commands-to-copy">
          {COMMANDS.map((command) => <li key={command}><code>{command}</code><Copy value={command} what={`command ${command}`} /></li>)}
        </ul>
      </Empty>
    </main>
  );
}

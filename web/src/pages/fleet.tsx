// The smaller pages: approvals, conditions, workers, health, login.
import { useState } from "react";
import { Button } from "react-aria-components";
import { post, signIn, type Approval, type Condition, type Node, type Page } from "../api/client";
import { useCaller } from "../caller";
import { Ago, Clock, Copy, Empty, Loading, Problem } from "../parts/parts";
import { count, plural, tail } from "../parts/format";
import { useResource } from "../parts/resource";
import { inertLine } from "../parts/text";
import { Link } from "../router";
import { ApprovalCard } from "../session/ApprovalCard";

export function Approvals() {
  const list = useResource<Page<Approval>>("/v1/approvals?limit=100", { fleet: true, everyMs: 15_000 });
  const rows = list.data?.data ?? [];
  return (
    <main className="page narrow" id="main">
      <h1>Approvals</h1>
      {Boolean(list.error) && <Problem error={list.error} what={list.data ? "This list may be old" : "The approvals cannot be read"} retry={list.reload} />}
      {list.loading && <Loading />}
      {list.data && rows.length === 0 && <Empty title="Nothing needs you"><p>Calls that ask first, and questions of agents, come here from all sessions.</p></Empty>}
      {rows.map((row) => (
        <section key={row.tool_use_id} aria-label={`From ${inertLine(row.session_title ?? "", 80) || tail(row.session_id)}`}>
          <p className="from">
            <Link to={`/sessions/${row.session_id}`}>{inertLine(row.session_title ?? "", 120) || "Untitled session"}</Link> <code className="meta">{tail(row.session_id)}</code>
          </p>
          <ApprovalCard
            ask={{ session: row.session_id, call: row.tool_use_id, kind: row.kind === "approval" ? "approval" : "answer", name: row.name, input: row.input, since: row.since ?? null, until: row.until ?? null }}
            done={list.reload}
          />
        </section>
      ))}
      {list.data?.next_page && <p className="meta">There are more; answer these first.</p>}
    </main>
  );
}

export function Conditions() {
  const caller = useCaller();
  const list = useResource<Page<Condition>>("/v1/conditions", { fleet: true, everyMs: 5000 });
  const [error, setError] = useState<unknown>(null);
  const act = async (id: string, what: "probe" | "clear") => {
    setError(null);
    try {
      await post(`/v1/conditions/${id}/${what}`);
    } catch (error) {
      setError(error);
    }
    list.reload();
  };
  const rows = list.data?.data ?? [];
  return (
    <main className="page narrow" id="main">
      <h1>Conditions</h1>
      <p className="meta">A limit or an outage belongs to a provider and its model, not to one session: one of those that wait tries, the others follow when it got through.</p>
      {Boolean(list.error) && <Problem error={list.error} what={list.data ? "This list may be old" : "The conditions cannot be read"} retry={list.reload} />}
      {Boolean(error) && <Problem error={error} what="That did not work" />}
      {list.loading && <Loading />}
      {list.data && rows.length === 0 && <Empty title="No upstream refuses anything" />}
      {rows.map((row) => (
        <section key={row.id} className="card pad" aria-label={inertLine(`${row.provider} ${row.model ?? ""}`)}>
          <div className="row"><strong>{inertLine(row.provider ?? "")}{row.model ? ` / ${inertLine(row.model)}` : ""}</strong><span className="state wait">{inertLine((row.class ?? "").replaceAll("_", " "))}, {row.stage}</span></div>
          <p>{inertLine(row.text ?? "", 400)}</p>
          {row.message && <p className="meta">It said: {inertLine(row.message, 300)}</p>}
          <p className="meta">{plural(row.waiting ?? 0, "session")} wait. Since <Ago at={row.opened_at} />{row.probe_at && <>; next try at <Clock at={row.probe_at} /></>}.</p>
          {caller.scope === "person" && row.stage === "open" && (
            <div className="row">
              <Button className="button" onPress={() => void act(row.id!, "probe")}>Have one try now</Button>
              <Button className="button" onPress={() => void act(row.id!, "clear")}>Let all go</Button>
            </div>
          )}
        </section>
      ))}
    </main>
  );
}

export function Workers() {
  const list = useResource<Page<Node>>("/v1/nodes", { everyMs: 3000 });
  const rows = [...(list.data?.data ?? [])].sort((a, b) => Number(a.is_dead) - Number(b.is_dead));
  const alive = rows.filter((row) => !row.is_dead);
  return (
    <main className="page" id="main">
      <h1>Workers</h1>
      {Boolean(list.error) && <Problem error={list.error} what={list.data ? "These rows may be old" : "The workers cannot be read"} retry={list.reload} />}
      {list.loading && <Loading />}
      {list.data && alive.length === 0 && (
        <Empty title="No worker is running">
          <p>Sessions wait, nothing is lost. Start one on the machine of the data folder:</p>
          <p className="row"><code>tenure worker</code><Copy value="tenure worker" what="command" /></p>
        </Empty>
      )}
      {rows.length > 0 && (
        <div className="card">
          <table className="rows" aria-label="Workers">
            <thead><tr><th scope="col">State</th><th scope="col">Worker</th><th scope="col" className="number">Leases</th><th scope="col" className="number">Last heartbeat</th></tr></thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.id}>
                  <td>{row.is_dead ? <span className="state bad">✕ dead</span> : <span className="state good">● alive</span>}</td>
                  <td className="title">{inertLine(row.label ?? "", 120)} <code className="meta">{tail(row.id ?? "")}</code> <Copy value={row.id ?? ""} what="id of the worker" /></td>
                  <td className="number mono">{count(row.leases ?? 0)}</td>
                  <td className="number mono"><Ago at={row.beat_at} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </main>
  );
}

export function Health() {
  const caller = useCaller();
  const alive = useResource<{ status: string }>("/healthz", { everyMs: 5000 });
  const ready = useResource<{ status: string }>("/readyz", { everyMs: 5000 });
  const nodes = useResource<Page<Node>>("/v1/nodes", { everyMs: 5000 });
  const live = nodes.data?.data.filter((node) => !node.is_dead).length;
  const check = (word: string, ok: boolean | undefined, why: string) => (
    <tr key={word}><td>{ok === undefined ? <span className="state">… asking</span> : ok ? <span className="state good">✓ ok</span> : <span className="state bad">✕ fails</span>}</td><th scope="row">{word}</th><td>{why}</td></tr>
  );
  return (
    <main className="page narrow" id="main">
      <h1>Health</h1>
      <div className="card">
        <table className="rows" aria-label="Checks">
          <thead><tr><th scope="col">Verdict</th><th scope="col">Check</th><th scope="col">What it means</th></tr></thead>
          <tbody>
            {check("Server", alive.error ? false : alive.data && true, "the process answers")}
            {check("Store", ready.error ? false : ready.data && true, "what is accepted is durable")}
            {check("Workers", live === undefined ? (nodes.error ? false : undefined) : live > 0, live === undefined ? "" : `${plural(live, "worker")} alive`)}
          </tbody>
        </table>
      </div>
      <dl className="facts wide">
        <div><dt>Version</dt><dd className="mono">{caller.server_version}</dd></div>
        <div><dt>Signed in with</dt><dd>{inertLine(caller.key_name)}, scope {caller.scope}, tenant {inertLine(caller.tenant)}</dd></div>
      </dl>
      <p className="meta">More, with what to do about each problem, on the machine itself: <code>tenure doctor</code> <Copy value="tenure doctor" what="command" /></p>
    </main>
  );
}

export function Login({ why, done }: { why: string; done: () => void }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState<unknown>(null);
  return (
    <main className="page login" id="main">
      <h1>Sign in</h1>
      {why && <p className="note wait" role="status">{why}</p>}
      <p>Open the link that <code>tenure dev</code> printed at its start. For another one:</p>
      <p className="row"><code>tenure workbench</code><Copy value="tenure workbench" what="command" /></p>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          signIn({ key: key.trim() }).then(done, setError);
        }}
      >
        <label className="stack">Or paste an API key<input type="password" autoComplete="off" value={key} onChange={(event) => setKey(event.target.value)} /></label>
        <div className="row"><Button className="button primary" type="submit" isDisabled={key.trim() === ""}>Sign in</Button></div>
      </form>
      {Boolean(error) && <Problem error={error} what="That did not work" />}
    </main>
  );
}

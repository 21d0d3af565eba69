// All sessions that match a query; the query is the address.
import { useEffect, useMemo, useRef, useState } from "react";
import { Button } from "react-aria-components";
import { Failure, get, openCalls, post, sessionPath, type Page, type Session } from "../api/client";
import { useCaller } from "../caller";
import { Confirm } from "../parts/Confirm";
import { Ago, Empty, Loading, PHASES, PhaseMark, Problem, phaseWord, useNow } from "../parts/parts";
import { count, money, plural, span, tail } from "../parts/format";
import { useKeys } from "../parts/keys";
import { announce } from "../parts/announce";
import { useResource } from "../parts/resource";
import { inertLine } from "../parts/text";
import { Link, setQuery, useAddress } from "../router";

const PAGE = 50;
/** Most sessions that one bulk action of the page touches; the command line takes more. */
const MOST_BULK = 1000;
/** Requests of a bulk action that are on the way at a time. */
const AT_ONCE = 4;
const ENDED = new Set(["done", "failed", "cancelled"]);

export function Sessions() {
  const { query } = useAddress();
  const q = query.get("q") ?? "";
  const [draft, setDraft] = useState(q);
  useEffect(() => setDraft(q), [q]);
  const search = useRef<HTMLInputElement>(null);
  const base = `/v1/sessions?limit=${PAGE}${q ? `&q=${encodeURIComponent(q)}` : ""}`;
  const first = useResource<Page<Session>>(base, { fleet: true });
  const [more, setMore] = useState<{ base: string; rows: Session[]; next: string | null }>({ base, rows: [], next: null });
  const [error, setError] = useState<unknown>(null);
  useEffect(() => setMore({ base, rows: [], next: null }), [base]);
  // Rows are patched in place; new ones wait for a press, so that nothing moves under the pointer.
  const [shown, setShown] = useState<{ base: string; ids: string[] }>({ base: "", ids: [] });
  const rows = useMemo(() => first.data?.data ?? [], [first.data]);
  useEffect(() => {
    if (first.data && shown.base !== base) setShown({ base, ids: rows.map((row) => row.id) });
  }, [first.data, base, rows, shown.base]);
  const known = useRef(new Map<string, Session>());
  rows.forEach((row) => known.current.set(row.id, row));
  const fresh = shown.base === base ? rows.filter((row) => !shown.ids.includes(row.id)).length : 0;
  useEffect(() => {
    if (fresh > 0) announce(`${fresh} new sessions`);
  }, [fresh]);
  const list = [...shown.ids.map((id) => known.current.get(id)).filter((row) => row !== undefined), ...more.rows];
  const next = more.rows.length > 0 ? more.next : (first.data?.next_page ?? null);
  const loadMore = async () => {
    if (!next) return;
    setError(null);
    try {
      const page = await get<Page<Session>>(`${base}&page=${encodeURIComponent(next)}`);
      setMore((before) => (before.base === base ? { base, rows: [...before.rows, ...page.data], next: page.next_page ?? null } : before));
    } catch (error) {
      setError(error);
    }
  };
  useKeys({ "/": () => search.current?.focus() });
  return (
    <main className="page" id="main">
      <h1>Sessions</h1>
      <form
        className="row search"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          setQuery({ q: draft.trim() }, "push");
        }}
      >
        <input ref={search} aria-label="Query" placeholder="phase:waiting agent:coder age:>1h cost:>2 metadata.customer:acme words of the title" value={draft} onChange={(event) => setDraft(event.target.value)} />
        <Button className="button" type="submit">Search</Button>
        {q && <Button className="button" onPress={() => setQuery({ q: null }, "push")}>Clear filter</Button>}
      </form>
      <div className="row chips" role="group" aria-label="Phases">
        {PHASES.map((phase) => (
          <button key={phase} type="button" className="chip" aria-pressed={q === `phase:${phase}`} onClick={() => setQuery({ q: q === `phase:${phase}` ? null : `phase:${phase}` }, "push")}>{phaseWord(phase)}</button>
        ))}
      </div>
      {first.error instanceof Failure && first.error.status === 400 ? (
        <div className="problem" role="alert"><strong>The query is not understood.</strong><p>{first.error.message}</p></div>
      ) : (
        Boolean(first.error) && <Problem error={first.error} what={first.data ? "These rows may be old" : "The sessions cannot be read"} retry={first.reload} />
      )}
      {fresh > 0 && <Button className="button" onPress={() => setShown({ base, ids: rows.map((row) => row.id) })}>{plural(fresh, "new session")} — show</Button>}
      {first.loading && <Loading lines={8} />}
      {first.data && list.length === 0 && (
        <Empty title={q ? "No session matches" : "No sessions yet"}>
          {q ? <Button className="button" onPress={() => setQuery({ q: null }, "push")}>Clear filter</Button> : <p><code>tenure run "…"</code> starts one</p>}
        </Empty>
      )}
      {list.length > 0 && <div className="card"><SessionRows sessions={list} label="Sessions" isKeyed /></div>}
      {Boolean(error) && <Problem error={error} what="More could not be read" />}
      <div className="row">
        {next && <Button className="button" onPress={() => void loadMore()}>Show more</Button>}
        <span className="meta">{plural(list.length, "session")} shown{next ? ", there are more" : ""}</span>
        <span className="spring" />
        {q && list.length > 0 && <Bulk q={q} done={first.reload} />}
      </div>
    </main>
  );
}

/** Why it does not run, in a few words; the sentence is on its page. */
export function briefWhy(session: Session, now: number): string {
  const wait = session.wait;
  const phase = session.phase ?? "";
  const until = wait?.until ? Date.parse(wait.until) - now : 0;
  const next = until > 0 ? `, next in ${span(Math.ceil(until / 1000) * 1000)}` : "";
  const calls = openCalls(session);
  switch (wait?.kind) {
    case undefined:
      if (phase === "queued") return session.queue_position ? `${session.queue_position} before it` : "next in line";
      if (phase === "idle") return inertLine(String((session.stop_reason as { type?: string } | null)?.type ?? "").replaceAll("_", " "), 60);
      return "";
    case "action":
      return `answer to ${inertLine(calls.filter((call) => call.state === "needs_answer").map((call) => call.name).join(", "), 60)}`;
    case "callback":
      return "an outside job answers";
    case "budget":
      return `limit of ${wait?.limit} reached`;
    case "backoff":
    case "condition":
    case "upstream":
      return `${(wait?.class ?? "upstream").replaceAll("_", " ")}${next}`;
    default:
      return `${String(wait?.kind).replaceAll("_", " ")}${next}`;
  }
}

export function SessionRows({ sessions, label, isKeyed = false }: { sessions: Session[]; label: string; isKeyed?: boolean }) {
  const now = useNow();
  const body = useRef<HTMLTableSectionElement>(null);
  const move = (by: number) => {
    const links = [...(body.current?.querySelectorAll<HTMLAnchorElement>("a.row-link") ?? [])];
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
  };
  useKeys(isKeyed ? { j: () => move(1), k: () => move(-1) } : {});
  return (
    <table className="rows sessions" aria-label={label}>
      <thead>
        <tr><th scope="col">State</th><th scope="col">Title</th><th scope="col" className="wide-only">Why</th><th scope="col" className="wide-only">Agent</th><th scope="col" className="number">Age</th><th scope="col" className="number">Cost</th></tr>
      </thead>
      <tbody ref={body}>
        {sessions.map((session) => (
          <tr key={session.id}>
            <td><PhaseMark phase={session.phase ?? ""} /></td>
            <td className="title">
              <span className="clamp">
                <Link className="row-link" to={`/sessions/${session.id}`}>{inertLine(session.title ?? "", 160) || "Untitled session"}</Link> <code className="meta">{tail(session.id)}</code>
              </span>
            </td>
            <td className="wide-only brief">{briefWhy(session, now)}</td>
            <td className="wide-only brief">{inertLine(session.agent?.name ?? "", 40)}</td>
            <td className="number mono"><Ago at={session.created_at} /></td>
            <td className="number mono">{session.usage?.has_unpriced && !session.usage.cost_usd ? "unknown" : money(session.usage?.cost_usd ?? 0)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

type Plan = { rows: Session[]; skipped: number; more: boolean };
const ACTIONS = { pause: "Pause", resume: "Resume", cancel: "Cancel" } as const;
const mayTake = (session: Session, action: keyof typeof ACTIONS) =>
  !ENDED.has(session.phase ?? "") && (action === "pause" ? !session.is_paused : action === "resume" ? session.phase === "paused" || session.phase === "backing_off" || session.phase === "waiting" : true);

/** The same action on all that match now: first counted, then done, and it can be stopped. */
function Bulk({ q, done }: { q: string; done: () => void }) {
  const caller = useCaller();
  const [action, setAction] = useState<keyof typeof ACTIONS | null>(null);
  const [plan, setPlan] = useState<Plan | null>(null);
  const [progress, setProgress] = useState<{ done: number; failed: string[]; running: boolean } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const stopped = useRef(false);
  if (caller.scope === "read") return null;
  const prepare = async (wanted: keyof typeof ACTIONS) => {
    setError(null);
    setProgress(null);
    try {
      const all: Session[] = [];
      let next: string | null = "";
      while (next !== null && all.length < MOST_BULK) {
        const page: Page<Session> = await get<Page<Session>>(`/v1/sessions?limit=200&q=${encodeURIComponent(q)}${next ? `&page=${encodeURIComponent(next)}` : ""}`);
        all.push(...page.data);
        next = page.next_page ?? null;
      }
      const rows = all.slice(0, MOST_BULK).filter((session) => mayTake(session, wanted));
      setPlan({ rows, skipped: Math.min(all.length, MOST_BULK) - rows.length, more: next !== null || all.length > MOST_BULK });
      setAction(wanted);
    } catch (error) {
      setError(error);
    }
  };
  const run = async () => {
    if (!plan || !action) return;
    stopped.current = false;
    const left = [...plan.rows];
    const state = { done: 0, failed: [] as string[], running: true };
    setProgress({ ...state });
    const worker = async () => {
      for (let row = left.shift(); row && !stopped.current; row = left.shift()) {
        try {
          await post(sessionPath(row.id, `/${action}`));
          state.done += 1;
        } catch (error) {
          state.failed.push(`${tail(row.id)}: ${error instanceof Failure ? error.message : String(error)}`);
        }
        setProgress({ ...state, failed: [...state.failed] });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    setProgress({ ...state, running: false });
    done();
  };
  const phases = new Map<string, number>();
  plan?.rows.forEach((row) => phases.set(row.phase ?? "", (phases.get(row.phase ?? "") ?? 0) + 1));
  return (
    <>
      {Boolean(error) && <Problem error={error} what="The matching sessions cannot be counted" />}
      {progress && (
        <span className="row" role="status">
          {count(progress.done)} done{progress.failed.length > 0 ? `, ${count(progress.failed.length)} failed (${inertLine(progress.failed[0]!, 120)})` : ""}
          {progress.running && <Button className="button small" onPress={() => (stopped.current = true)}>Stop</Button>}
        </span>
      )}
      {(Object.keys(ACTIONS) as (keyof typeof ACTIONS)[]).map((name) => (
        <Button key={name} className="button" isDisabled={progress?.running ?? false} onPress={() => void prepare(name)}>{ACTIONS[name]} all…</Button>
      ))}
      {plan && action && (
        <Confirm title={`${ACTIONS[action]} ${plural(plan.rows.length, "session")}?`} verb={`${ACTIONS[action]} ${count(plan.rows.length)}`} close={() => setPlan(null)} confirm={() => void run()}>
          <p>Those that match <code>{inertLine(q)}</code> now: {[...phases].map(([phase, many]) => `${count(many)} ${phaseWord(phase).toLowerCase()}`).join(", ") || "none"}.</p>
          {plan.skipped > 0 && <p>{plural(plan.skipped, "matching session")} cannot be changed so and {plan.skipped === 1 ? "is" : "are"} skipped.</p>}
          {plan.more && <p>More than {count(MOST_BULK)} match; these are the newest. The command line takes all: <code>tenure {action} --query '{inertLine(q)}'</code></p>}
        </Confirm>
      )}
    </>
  );
}


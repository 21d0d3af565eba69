// One session: what it is and why it does not run, its conversation, its work, and what a person can do.
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { Button } from "react-aria-components";
import { Failure, post, sessionPath, type Explanation, type Session } from "../api/client";
import { useCaller } from "../caller";
import { Copy, Empty, Loading, PhaseMark, Problem, useNow } from "../parts/parts";
import { Confirm } from "../parts/Confirm";
import { usePaused } from "../parts/pause";
import { useResource } from "../parts/resource";
import { inertLine } from "../parts/text";
import { money, span, tail } from "../parts/format";
import { announce } from "../parts/announce";
import { useKeys } from "../parts/keys";
import { Link, setQuery, useAddress } from "../router";
import { Composer } from "../session/Composer";
import { Conversation } from "../session/Conversation";
import { entriesOf } from "../session/entries";
import { SessionModel } from "../session/model";
import { Commands } from "../session/Commands";
import { Context } from "../session/Context";
import { Details } from "../session/Details";
import { Files } from "../session/Files";
import { Fork } from "../session/Fork";
import { Timeline } from "../session/Timeline";

const ENDED = new Set(["done", "failed", "cancelled"]);
const SIDES = [["commands", "Commands"], ["files", "Files"], ["context", "What the model saw"], ["details", "Details"]] as const;
/** The same on a phone, where words are short. */
const SHORT: Record<string, string> = { context: "Context" };

export function SessionPage({ id }: { id: string }) {
  const { query } = useAddress();
  const model = useMemo(() => new SessionModel(id), [id]);
  const state = useSyncExternalStore(model.subscribe, model.snapshot);
  const head = useResource<Session>(sessionPath(id), { everyMs: 15_000 });
  const why = useResource<Explanation>(sessionPath(id, "/explain"), { everyMs: 15_000 });
  const paused = usePaused();
  const caller = useCaller();

  useEffect(() => {
    const selected = Number(new URLSearchParams(location.search).get("at")) || null;
    void model.open(selected);
    return () => model.close();
  }, [model]);
  useEffect(() => {
    if (state.loading || state.deleted) return;
    if (paused) model.pause();
    else model.follow();
    // Only a change of the pause matters: the model follows by itself after it opened.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [paused]);

  // Rows change the head; many rows are one change.
  const { reload: reloadHead } = head;
  const { reload: reloadWhy } = why;
  const refresh = useCallback(() => {
    reloadHead();
    reloadWhy();
  }, [reloadHead, reloadWhy]);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = model.onRows(() => {
      clearTimeout(timer);
      timer = setTimeout(refresh, 120);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [model, refresh]);

  const session = head.data;
  const title = session ? inertLine(session.title ?? "", 120) || "Untitled session" : "Session";
  useEffect(() => {
    document.title = `${title} · tenure`;
  }, [title]);
  const wasWriting = useRef(false);
  useEffect(() => {
    const isWriting = state.live.length > 0;
    if (isWriting !== wasWriting.current) announce(isWriting ? "The agent is writing" : "Message complete");
    wasWriting.current = isWriting;
  }, [state.live.length]);

  const entries = useMemo(() => entriesOf(state.events, state.queued), [state.events, state.queued]);
  const step = useCallback(
    (by: number) => {
      const own = entries.filter((entry) => entry.seq !== null);
      const at = own.findIndex((entry) => entry.id === new URLSearchParams(location.search).get("sel"));
      const next = own[at < 0 ? (by < 0 ? own.length - 1 : 0) : Math.min(own.length - 1, Math.max(0, at + by))];
      if (next) setQuery({ sel: next.id, at: String(next.seq) });
    },
    [entries],
  );
  useKeys({
    "[": () => step(-1),
    "]": () => step(1),
    L: () => setQuery({ sel: null, at: null }),
    c: () => void navigator.clipboard?.writeText(id),
    F: () => setQuery({ fork: String(state.lastSeq) }),
    y: () => void navigator.clipboard?.writeText(location.href),
    "1": () => setQuery({ panel: "chat" }),
    "2": () => setQuery({ panel: "commands" }),
    "3": () => setQuery({ panel: "files" }),
    "4": () => setQuery({ panel: "details" }),
    "5": () => setQuery({ panel: "timeline" }),
  });

  if (state.deleted || (head.error instanceof Failure && head.error.status === 404)) {
    return (
      <main className="page" id="main">
        <Empty title="This session is not there">
          <p>It was deleted, or it belongs to somebody else. <Link to="/sessions">All sessions</Link></p>
          <p className="meta mono">{id}</p>
        </Empty>
      </main>
    );
  }
  const forkAt = query.get("fork");
  const panel = query.get("panel") ?? "chat";
  const side = SIDES.some(([name]) => name === panel) ? panel : "commands";
  const phase = why.data?.phase ?? session?.phase ?? "idle";
  return (
    <main className="session" id="main" data-panel={panel}>
      <div className="session-head">
        <h1>{title}</h1>
        <span className="row tight">
          <code title={id}>{tail(id)}</code>
          <Copy value={id} what="session id" />
        </span>
        {session && <PhaseMark phase={phase} />}
        {session && <Why explanation={why.data} />}
        <span className="spring" />
        {session && <Budget session={session} />}
        {session && caller.scope !== "read" && <Button className="button" onPress={() => setQuery({ fork: String(state.lastSeq) })}>Fork…</Button>}
        {session && <Actions session={session} explanation={why.data} refresh={refresh} />}
      </div>
      {Boolean(head.error) && !session && <Problem error={head.error} what="The session cannot be read" retry={refresh} />}
      <div className="panes">
        <section className="pane chat" aria-label="Conversation">
          <h2>
            Conversation <span className="spring" />
            {state.lastSeq > 0 && <span className="mono">{state.lastSeq} events</span>}
          </h2>
          {state.loading ? (
            <Loading lines={6} />
          ) : state.error && state.events.length === 0 ? (
            <Problem error={state.error} what="The conversation cannot be read" retry={() => void model.open()} />
          ) : (
            <Conversation model={model} state={state} entries={entries} session={session} refresh={refresh} />
          )}
          <Composer model={model} session={session} phase={phase} refresh={refresh} />
        </section>
        <section className="pane side" aria-label="Work">
          <div className="tabs" role="tablist" aria-label="Work">
            {SIDES.map(([name, word]) => (
              <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={side === name} aria-controls="side-panel" onClick={() => setQuery({ panel: name })}>
                {word}
              </button>
            ))}
          </div>
          <div className="side-body" role="tabpanel" id="side-panel" aria-labelledby={`tab-${side}`} tabIndex={0}>
            {side === "commands" && <Commands id={id} entries={entries} hasOlder={state.hasOlder} />}
            {side === "files" && <Files id={id} model={model} />}
            {side === "context" && <Context id={id} lastSeq={state.lastSeq} />}
            {side === "details" && session && <Details session={session} />}
          </div>
        </section>
      </div>
      {session && forkAt !== null && !state.loading && caller.scope !== "read" && (
        <Fork key={forkAt} session={session} entries={entries} lastSeq={state.lastSeq} start={Number(forkAt) || 0} close={() => setQuery({ fork: null })} />
      )}
      <Timeline id={id} model={model} lastSeq={state.lastSeq} />
      <nav className="phone-bar" aria-label="Panels">
        {[["chat", "Chat"], ...SIDES, ["timeline", "Timeline"]].map(([name, word]) => (
          <button key={name} type="button" aria-pressed={panel === name} onClick={() => setQuery({ panel: name! })}>
            {SHORT[name!] ?? word}
          </button>
        ))}
      </nav>
    </main>
  );
}

/** The server's sentence; only the countdown is counted here. */
function Why({ explanation }: { explanation: Explanation | undefined }) {
  const now = useNow();
  if (!explanation) return null;
  const parts = [inertLine(explanation.text, 400)];
  if (explanation.until) {
    const left = Date.parse(explanation.until) - now;
    if (left > 0) parts.push(`Next in ${span(Math.ceil(left / 1000) * 1000)}.`);
  }
  if (explanation.since && explanation.phase !== "idle" && !ENDED.has(explanation.phase)) {
    parts.push(`Since ${span(Math.max(0, Math.floor((now - Date.parse(explanation.since)) / 1000) * 1000))}.`);
  }
  if (!explanation.holds_worker && !ENDED.has(explanation.phase)) parts.push("No worker held.");
  return <p className="why" data-testid="why">{parts.join(" ")}</p>;
}

function Budget({ session }: { session: Session }) {
  const usage = session.usage ?? {};
  const limits = session.limits ?? {};
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  const cost = usage.cost_usd ?? 0;
  const spent = usage.has_unpriced && cost === 0 ? "price unknown" : money(cost) + (usage.has_unpriced ? "+" : "");
  const [used, cap, word] =
    limits.cost_usd != null
      ? [cost, limits.cost_usd, `${spent} of ${money(limits.cost_usd)}`]
      : limits.tokens != null
        ? [tokens, limits.tokens, `${spent}, ${tokens.toLocaleString("en-US")} of ${limits.tokens.toLocaleString("en-US")} tokens`]
        : limits.steps != null
          ? [session.steps ?? 0, limits.steps, `${spent}, ${session.steps ?? 0} of ${limits.steps} steps`]
          : [0, 0, `${spent}, ${tokens.toLocaleString("en-US")} tokens`];
  const share = cap > 0 ? Math.min(100, Math.round((used / cap) * 100)) : null;
  return (
    <span className="budget">
      <span className="mono">{word}</span>
      {share !== null && (
        <meter className={share >= 80 ? "near" : ""} min={0} max={100} value={share} aria-label={`${share} percent of the budget used`} />
      )}
    </span>
  );
}

/** What the server says would unblock it, and what a person may always do. */
function Actions({ session, explanation, refresh }: { session: Session; explanation: Explanation | undefined; refresh: () => void }) {
  const caller = useCaller();
  const [error, setError] = useState<unknown>(null);
  const [asks, setAsks] = useState<"cancel" | null>(null);
  const act = async (path: string, body: unknown = {}) => {
    setError(null);
    try {
      await post(path, body);
      refresh();
    } catch (error) {
      setError(error);
    }
  };
  useKeys({ P: () => session.is_paused || ENDED.has(session.phase ?? "") ? undefined : void act(sessionPath(session.id, "/pause")) });
  if (caller.scope === "read" || ENDED.has(session.phase ?? "")) return null;
  // Answers and messages have their own place on the page.
  const offered = (explanation?.unblock ?? []).filter(
    (unblock) => unblock.method === "POST" && unblock.path?.startsWith("/v1/") && !/\/(events|cancel|pause)$/.test(unblock.path),
  );
  const hasResume = offered.some((unblock) => unblock.path?.endsWith("/resume"));
  return (
    <span className="row">
      {offered.map((unblock) => (
        <Button key={`${unblock.path}${unblock.text}`} className="button primary" onPress={() => void act(unblock.path!, unblock.body ?? {})}>
          {sentence(unblock.text ?? "Unblock")}
        </Button>
      ))}
      {session.is_paused && !hasResume && <Button className="button primary" onPress={() => void act(sessionPath(session.id, "/resume"))}>Resume</Button>}
      {!session.is_paused && <Button className="button" onPress={() => void act(sessionPath(session.id, "/pause"))}>Pause</Button>}
      <Button className="button" onPress={() => setAsks("cancel")}>Cancel…</Button>
      {asks === "cancel" && (
        <Confirm
          title="Cancel this session?"
          verb="Cancel the session"
          close={() => setAsks(null)}
          confirm={() => act(sessionPath(session.id, "/cancel"))}
        >
          <p>Its processes are ended and it cannot go on. Pause keeps everything instead. The conversation stays readable either way.</p>
        </Confirm>
      )}
      {Boolean(error) && <Problem error={error} what="That did not work" />}
    </span>
  );
}

const sentence = (text: string) => inertLine(text.charAt(0).toUpperCase() + text.slice(1), 80);


// The conversation: the newest entries, older ones on demand, and the open message as it is written.
import { memo, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Button } from "react-aria-components";
import type { Session } from "../api/client";
import { Clock, Copy, Empty } from "../parts/parts";
import { LongText, Markdown, inert, inertLine } from "../parts/text";
import { count, money, plural, span } from "../parts/format";
import { setQuery, useAddress } from "../router";
import { ApprovalCards } from "./ApprovalCard";
import { blocks, text, type Call, type Entry, type Step } from "./entries";
import type { Live, SessionModel, State } from "./model";

/** So near to the end counts as the end. */
const NEAR_PX = 80;

type Props = { model: SessionModel; state: State; entries: Entry[]; session: Session | undefined; refresh: () => void };

export function Conversation({ model, state, entries, session, refresh }: Props) {
  const { query } = useAddress();
  const selected = query.get("sel");
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(selected === null);
  const [isAway, setIsAway] = useState(false);
  const anchor = useRef<{ height: number; top: number } | null>(null);

  const toEnd = () => {
    const box = scroller.current;
    if (box) box.scrollTop = box.scrollHeight;
  };
  // Older entries come in above: what was read stays where it is.
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    if (anchor.current) {
      box.scrollTop = anchor.current.top + (box.scrollHeight - anchor.current.height);
      anchor.current = null;
    } else if (isAtEnd.current) toEnd();
  });
  useEffect(() => model.onText(() => isAtEnd.current && toEnd()), [model]);
  useEffect(() => {
    if (!selected) return;
    const entry = document.getElementById(`entry-${selected}`);
    if (entry) {
      isAtEnd.current = false;
      entry.scrollIntoView({ block: "center" });
      entry.focus({ preventScroll: true });
    }
  }, [selected, entries.length === 0]); // eslint-disable-line react-hooks/exhaustive-deps

  const older = () => {
    const box = scroller.current;
    if (box) anchor.current = { height: box.scrollHeight, top: box.scrollTop };
    void model.loadOlder();
  };
  return (
    <div className="scroll-frame">
      <div
        className="scroller"
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label="Entries of the conversation"
        onScroll={(event) => {
          const box = event.currentTarget;
          isAtEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
          setIsAway(!isAtEnd.current);
        }}
      >
        {state.hasOlder && (
          <div className="older">
            <Button className="button" isDisabled={state.loadingOlder} onPress={older}>{state.loadingOlder ? "Reading…" : "Show older"}</Button>
          </div>
        )}
        {entries.length === 0 && state.live.length === 0 && <Empty title="Nothing has been said yet"><p>Write the first message below.</p></Empty>}
        {entries.map((entry) => (
          <EntryView key={entry.id} entry={entry} isSelected={entry.id === selected} sessionId={model.id} />
        ))}
        {state.live.map((live) => (
          <LiveView key={`${live.id}-${live.attempt}`} live={live} model={model} />
        ))}
        {session && <ApprovalCards session={session} events={state.events} refresh={refresh} />}
      </div>
      {isAway && (
        <Button
          className="button to-end"
          onPress={() => {
            isAtEnd.current = true;
            setQuery({ sel: null, at: null });
            toEnd();
          }}
        >
          To the newest
        </Button>
      )}
    </div>
  );
}

/** The open message: one text node, written to once per frame. */
function LiveView({ live, model }: { live: Live; model: SessionModel }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const node = document.createTextNode("");
    place.current?.replaceChildren(node);
    let written = 0;
    const write = () => {
      if (live.text.length === written) return;
      // Pieces may end inside a sequence that is taken out: only those without one are appended.
      const fresh = live.text.slice(written);
      // eslint-disable-next-line no-control-regex
      if (/[\u001b\u009b]/.test(live.text)) node.data = inert(live.text);
      else node.appendData(inert(fresh));
      written = live.text.length;
    };
    write();
    return model.onText(write);
  }, [live, model]);
  if (live.type === "agent.thinking") {
    return <div className="entry note"><span className="live-dot" aria-hidden="true" /> The model reasons…</div>;
  }
  return (
    <div className="entry message agent live" data-testid="live">
      <div className="who"><span>agent</span><span>writing{live.attempt > 1 ? `, attempt ${live.attempt}` : ""}</span></div>
      <div className="prose plain" dir="auto" ref={place} />
    </div>
  );
}

const EntryView = memo(function EntryView({ entry, isSelected, sessionId }: { entry: Entry; isSelected: boolean; sessionId: string }) {
  const shared = { id: `entry-${entry.id}`, tabIndex: -1, "data-seq": entry.seq ?? "queued" };
  const selection = isSelected ? " selected" : "";
  switch (entry.kind) {
    case "message":
      return (
        <article {...shared} className={`entry message ${entry.who}${selection}`} aria-label={`Message of ${entry.who === "user" ? "a person" : entry.who}`}>
          <div className="who">
            <span>{entry.who === "user" ? "you" : entry.who}{entry.step !== null && entry.who === "agent" ? ` · step ${entry.step}` : ""}</span>
            {entry.queued ? <span className="queued">queued: it is taken at the next step</span> : <Clock at={entry.at} />}
            <Cost step={entry.cost} />
            <Permalink entry={entry} sessionId={sessionId} />
          </div>
          <Markdown value={entry.text} />
          {entry.media > 0 && <p className="meta">{plural(entry.media, "attachment")} not shown here</p>}
        </article>
      );
    case "thinking":
      return (
        <details {...shared} className={`entry fold-block${selection}`}>
          <summary><span className="meta">Reasoning</span><span className="brief">{inertLine(entry.text, 120)}</span></summary>
          <LongText value={entry.text} as="div" className="prose" />
        </details>
      );
    case "call":
      return <CallView entry={entry} shared={shared} selection={selection} sessionId={sessionId} />;
    case "result":
      return (
        <details {...shared} className={`entry fold-block${selection}`}>
          <summary><span className="meta">Result of an earlier call</span></summary>
          <LongText value={blocks(entry.result.content).text} />
        </details>
      );
    case "note":
      return (
        <div {...shared} className={`entry note ${entry.tone}${selection}`}>
          <span>{inertLine(entry.text)}</span>
          {entry.detail && <span className="detail">{inertLine(entry.detail, 600)}</span>}
          <span className="spring" />
          <Clock at={entry.at} />
        </div>
      );
    case "unknown":
      return (
        <details {...shared} className={`entry fold-block${selection}`}>
          <summary><span className="meta">An event that this page does not know:</span> <code>{inertLine(entry.event.type, 80)}</code></summary>
          <LongText value={JSON.stringify(entry.event, null, 2)} />
        </details>
      );
  }
});

function Cost({ step }: { step: Step | null }) {
  if (!step) return null;
  const cost = step.cost !== null ? money(step.cost) : step.priced ? null : "price unknown";
  return (
    <>
      {step.input + step.output > 0 && <span title={`${count(step.input)} in, ${count(step.output)} out, ${inertLine(step.model, 60)}`}>{count(step.input + step.output)} tok</span>}
      {cost && <span>{cost}</span>}
      {step.attempts > 1 && <span>{step.attempts} attempts</span>}
    </>
  );
}

function Permalink({ entry, sessionId }: { entry: Entry; sessionId: string }) {
  if (entry.seq === null) return null;
  const link = `${location.origin}/sessions/${sessionId}?sel=${entry.id}&at=${entry.seq}`;
  return (
    <span className="entry-tools row tight">
      {(entry.kind === "call" || (entry.kind === "message" && entry.who === "agent")) && (
        <Button className="button quiet small" onPress={() => setQuery({ panel: "context", at: String(entry.seq), sel: entry.id }, "push")}>What the model saw</Button>
      )}
      <Button className="button quiet small" onPress={() => setQuery({ fork: String(entry.seq) })}>Fork here</Button>
      <Copy value={link} what="link to this step" />
    </span>
  );
}

export function briefOf(call: Call): string {
  const input = (call.use.input ?? {}) as Record<string, unknown>;
  const named = input.command ?? input.file_path ?? input.path ?? input.pattern ?? input.url ?? input.question ?? input.label;
  return inertLine(named !== undefined ? text(named) : text(input), 160);
}

export function callState(call: Call): { word: string; tone: "good" | "bad" | "plain" | "wait" } {
  const result = call.result;
  if (!result) {
    if (call.decision?.result === "deny") return { word: "denied", tone: "bad" };
    if (call.use.evaluated_permission === "ask" && !call.decision) return { word: "asks", tone: "wait" };
    return { word: call.started ? "running" : "open", tone: "plain" };
  }
  const outcome = text(result.outcome);
  const exit = /exit code (\d+)/.exec(blocks(result.content).text.slice(-400))?.[1];
  if (outcome === "unknown") return { word: "outcome unknown", tone: "wait" };
  if (outcome === "denied") return { word: "denied", tone: "bad" };
  if (outcome === "interrupted" || outcome === "not_run") return { word: outcome.replace("_", " "), tone: "wait" };
  if (exit && exit !== "0") return { word: `exit ${exit}`, tone: "bad" };
  return result.is_error ? { word: "failed", tone: "bad" } : { word: call.use.name === "bash" ? "exit 0" : "done", tone: "good" };
}

export function durationOf(call: Call): string {
  const [from, to] = [call.use.processed_at, call.result?.processed_at];
  return from && to ? span(Date.parse(to) - Date.parse(from)) : "";
}

function CallView({ entry, shared, selection, sessionId }: { entry: Extract<Entry, { kind: "call" }>; shared: { id: string; tabIndex: number }; selection: string; sessionId: string }) {
  const { call } = entry;
  const { word, tone } = callState(call);
  const input = (call.use.input ?? {}) as Record<string, unknown>;
  const output = call.result ? blocks(call.result.content) : null;
  return (
    <details {...shared} className={`entry fold-block call${selection}`}>
      <summary>
        <code className="name">{inertLine(text(call.use.name), 40)}</code>
        <code className="brief">{briefOf(call)}</code>
        <span className={`state ${tone}`}>{word}</span>
        <span className="meta mono">{durationOf(call)}</span>
      </summary>
      <div className="call-body">
        <div className="row meta">
          {entry.step !== null && <span>step {entry.step}</span>}
          <Clock at={entry.at} />
          <Cost step={entry.cost} />
          <span className="spring" />
          <Copy value={typeof input.command === "string" ? input.command : JSON.stringify(input, null, 2)} what="input of the call" />
          <Permalink entry={entry} sessionId={sessionId} />
        </div>
        {text(call.use.malformed) && <p className="bad">The model wrote this call wrongly: {inertLine(text(call.use.malformed))}</p>}
        <LongText value={typeof input.command === "string" ? input.command : JSON.stringify(input, null, 2)} className="code" />
        {call.decision && <p className="meta">A person said {text(call.decision.result)}{call.decision.deny_message ? `: ${inertLine(text(call.decision.deny_message))}` : ""}</p>}
        {output && <LongText value={output.text} className="code" />}
        {output && output.media > 0 && <p className="meta">{plural(output.media, "attachment")} not shown here</p>}
      </div>
    </details>
  );
}

// What needs a person: allow or deny a call, or answer a question. The same card stands in the
// conversation and in the queue. The first answer wins; whoever comes later is told.
import { useRef, useState } from "react";
import { Button } from "react-aria-components";
import { openCalls, post, sessionPath, type Session, type WireEvent } from "../api/client";
import { useCaller } from "../caller";
import { Ago, Clock, Problem } from "../parts/parts";
import { LongText, inertLine } from "../parts/text";
import { text } from "./entries";

export type Ask = { session: string; call: string; kind: "approval" | "answer"; name: string; input: unknown; since: string | null; until: string | null };

export function ApprovalCards({ session, events, refresh }: { session: Session; events: WireEvent[]; refresh: () => void }) {
  const open = openCalls(session);
  const asks = open.filter((call) => call.state === "needs_answer").map((call): Ask => {
    const event = events.find((event) => event.id === call.id);
    return {
      session: session.id,
      call: call.id,
      kind: event?.type === "agent.custom_tool_use" ? "answer" : "approval",
      name: call.name,
      input: event?.input ?? null,
      since: event?.processed_at ?? null,
      until: session.wait?.until ?? null,
    };
  });
  return <>{asks.map((ask) => <ApprovalCard key={ask.call} ask={ask} done={refresh} />)}</>;
}

export function ApprovalCard({ ask, done }: { ask: Ask; done: () => void }) {
  const caller = useCaller();
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [armed, setArmed] = useState(false);
  const [denying, setDenying] = useState(false);
  const [words, setWords] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  const input = (ask.input ?? {}) as Record<string, unknown>;
  const shown = typeof input.command === "string" ? input.command : typeof input.question === "string" ? input.question : ask.input === null ? "" : JSON.stringify(input, null, 2);
  const send = async (event: Record<string, unknown>) => {
    setBusy(true);
    setError(null);
    try {
      await post(sessionPath(ask.session, "/events"), { events: [event] });
      done();
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  const decide = (result: "allow" | "deny") => void send({ type: "user.tool_confirmation", tool_use_id: ask.call, result, ...(result === "deny" && words.trim() ? { deny_message: words.trim() } : {}) });
  const answer = () => void send({ type: "user.custom_tool_result", custom_tool_use_id: ask.call, content: [{ type: "text", text: words }], is_error: false });
  const mayDecide = ask.kind === "answer" ? caller.scope !== "read" : caller.scope === "person";
  return (
    <div
      className="approval"
      role="group"
      tabIndex={0}
      aria-label={`${ask.kind === "answer" ? "Answer" : "Approve"} ${inertLine(ask.name, 60)}`}
      data-call={ask.call}
      onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && setArmed(false)}
      onKeyDown={(event) => {
        // Only with the focus on the card itself, and never with one key alone.
        if (event.target !== event.currentTarget || !mayDecide || busy) return;
        const key = event.key;
        if (key === "a" && ask.kind === "approval") setArmed(true);
        else if (key === "Enter" && armed) decide("allow");
        else if (key === "x" && ask.kind === "approval") {
          setDenying(true);
          setTimeout(() => field.current?.focus());
        } else if (key === "Escape") {
          setArmed(false);
          setDenying(false);
        } else return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <div className="row">
        <strong>{ask.kind === "answer" ? "Answer" : "Approve"} <code>{inertLine(ask.name, 60)}</code>?</strong>
        <span className="spring" />
        {ask.since && <span className="meta">asked <Ago at={ask.since} /> ago</span>}
      </div>
      {shown && <LongText value={shown} className="code" />}
      {ask.until && <p className="meta">Expires at <Clock at={ask.until} />; then the call is refused and the model is told.</p>}
      {!mayDecide && <p className="meta">This login has the scope {caller.scope}; the decision needs the scope person.</p>}
      {mayDecide && (ask.kind === "answer" || denying) && (
        <label className="stack">
          {ask.kind === "answer" ? "Your answer; the model reads it" : "Reason; the model reads it (may be empty)"}
          <textarea ref={field} rows={2} value={words} onChange={(event) => setWords(event.target.value)} />
        </label>
      )}
      {mayDecide && (
        <div className="row">
          {ask.kind === "answer" ? (
            <Button className="button primary" isDisabled={busy || words.trim() === ""} onPress={answer}>Send the answer</Button>
          ) : denying ? (
            <>
              <Button className="button danger" isDisabled={busy} onPress={() => decide("deny")}>Deny</Button>
              <Button className="button" onPress={() => setDenying(false)}>Back</Button>
            </>
          ) : (
            <>
              <Button className="button primary" isDisabled={busy} onPress={() => decide("allow")}>
                {armed ? "Press Enter to approve" : "Approve once"} <kbd>A</kbd>
              </Button>
              <Button className="button" isDisabled={busy} onPress={() => setDenying(true)}>Deny… <kbd>X</kbd></Button>
            </>
          )}
          <span className="meta">Leaving it open is fine: nothing is held while it waits.</span>
        </div>
      )}
      {Boolean(error) && <Problem error={error} what={`The answer to ${text(ask.name)} was not taken`} retry={done} />}
    </div>
  );
}

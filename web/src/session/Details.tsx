// What a session is made of.
import type { ReactNode } from "react";
import type { Session } from "../api/client";
import { Clock, Copy } from "../parts/parts";
import { LongText, inertLine } from "../parts/text";
import { count, tail } from "../parts/format";
import { Link } from "../router";

export function Details({ session }: { session: Session }) {
  const usage = session.usage ?? {};
  const agent = session.agent;
  const model = typeof agent?.model === "string" ? agent.model : agent?.model?.id;
  const rows: [string, ReactNode][] = [
    ["Session", <Named key="s" id={session.id} />],
    ["Agent", <><span>{inertLine(agent?.name ?? "")}, version {agent?.version} </span><Named key="a" id={agent?.id ?? ""} /></>],
    ["Model", <code key="m">{inertLine(model ?? "")}</code>],
    ["Environment", <Named key="e" id={session.environment_id ?? ""} />],
    ...(session.forked_from ? [["Fork of", <Link key="f" to={`/sessions/${session.forked_from.session_id}?at=${session.forked_from.at_seq}`}>…{tail(session.forked_from.session_id)} at event {session.forked_from.at_seq}</Link>] as [string, ReactNode]] : []),
    ["Created", <Clock key="c" at={session.created_at} />],
    ["Changed", <Clock key="u" at={session.updated_at} />],
    ["Steps", count(session.steps ?? 0)],
    ["Tokens", `${count(usage.input_tokens ?? 0)} in, ${count(usage.output_tokens ?? 0)} out`],
    ["Inputs that wait", count(session.inbox_len ?? 0)],
  ];
  return (
    <div className="stack">
      <dl className="facts">
        {rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
      </dl>
      {(session.warnings ?? []).map((warning) => <p key={warning} className="note wait">{inertLine(warning)}</p>)}
      {Object.keys(session.metadata ?? {}).length > 0 && <LongText value={JSON.stringify(session.metadata, null, 2)} className="code" />}
      <details className="fold-block">
        <summary>Limits</summary>
        <LongText value={JSON.stringify(session.limits ?? {}, null, 2)} className="code" />
      </details>
    </div>
  );
}

function Named({ id }: { id: string }) {
  return <span className="row tight"><code>{id}</code>{id && <Copy value={id} what="id" />}</span>;
}

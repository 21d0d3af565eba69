// The request that a model was sent: the one of the selected step, else the newest.
import type { components } from "../api/schema";
import { Failure, sessionPath } from "../api/client";
import { Copy, Empty, Loading, Problem } from "../parts/parts";
import { LongText, inertLine } from "../parts/text";
import { count } from "../parts/format";
import { useResource } from "../parts/resource";
import { useAddress } from "../router";

type Seen = components["schemas"]["SeenContext"];

export function Context({ id, lastSeq }: { id: string; lastSeq: number }) {
  const { query } = useAddress();
  const at = Number(query.get("at")) || lastSeq;
  const seen = useResource<Seen>(at > 0 ? sessionPath(id, `/context?seq=${at}`) : null);
  if (at === 0 || (seen.error instanceof Failure && seen.error.status === 404)) return <Empty title="No model was called yet" />;
  if (seen.error) return <Problem error={seen.error} what="What the model saw cannot be read" retry={seen.reload} />;
  if (!seen.data) return <Loading lines={6} />;
  const body = seen.data.request == null ? "" : JSON.stringify(seen.data.request, null, 2);
  return (
    <div className="stack">
      <div className="row">
        <strong>Step {seen.data.step}</strong>
        <span className="meta">
          {inertLine(seen.data.model ?? "", 60)}, attempt {seen.data.attempt}, about {count(seen.data.input_tokens ?? 0)} tokens{seen.data.is_exact === false ? ", not byte for byte" : ""}; secrets are taken out
        </span>
        <span className="spring" />
        {body && <Copy value={body} what="request" />}
      </div>
      {seen.data.reason && <p className="note wait">{inertLine(seen.data.reason, 300)}</p>}
      {body && <LongText value={body} className="code" />}
    </div>
  );
}

// Leases, steps, waits and retries over time. Drawn on a canvas; the list has the same rows for
// those who do not see it, and to copy. Stretches without a lease are collapsed.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { get, sessionPath, serverNow, type Page, type Span } from "../api/client";
import { Clock, Problem } from "../parts/parts";
import { clock, count, span } from "../parts/format";
import { usePaused } from "../parts/pause";
import { settings, useSetting } from "../parts/settings";
import { inertLine } from "../parts/text";
import { setQuery, useAddress } from "../router";
import type { SessionModel } from "./model";

/** Longer stretches in which nothing holds compute are collapsed. */
const IDLE_MS = 30_000;
/** Width of a collapsed stretch. */
const GAP_PX = 72;
const LANE_PX = 28;
const HEAD_PX = 24;
const LEFT_PX = 76;
const LANES = ["Leases", "Model", "Tools", "Waits", "Retries"] as const;
/** Most pages of spans that are read. */
const MOST_PAGES = 10;
/** Most rows of the list. */
const MOST_ROWS = 500;

type Shape = { lane: number; from: number; to: number; open: boolean; style: "solid" | "wait" | "human" | "tick" | "bin"; label: string; span: Span };
type Segment = { from: number; to: number; idle: boolean; x: number; width: number };

export function Timeline({ id, model, lastSeq }: { id: string; model: SessionModel; lastSeq: number }) {
  const { query } = useAddress();
  const view = query.get("timeline") ?? "drawn";
  const zone = useSetting(settings.zone);
  const theme = useSetting(settings.theme);
  const paused = usePaused();
  const [spans, setSpans] = useState<Span[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [zoom, setZoom] = useState(1);
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const hits = useRef<{ x: number; y: number; w: number; h: number; span: Span }[]>([]);

  const read = useCallback(async () => {
    try {
      const all: Span[] = [];
      let next: string | null | undefined = undefined;
      for (let page = 0; page < MOST_PAGES && next !== null; page += 1) {
        const reply: Page<Span> = await get<Page<Span>>(sessionPath(id, `/timeline${next ? `?page=${encodeURIComponent(next)}` : ""}`));
        all.push(...reply.data);
        next = reply.next_page ?? null;
      }
      setSpans(all);
      setError(null);
    } catch (error) {
      setError(error);
    }
  }, [id]);
  useEffect(() => {
    void read();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let last = Date.now();
    const stop = model.onRows(() => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        last = Date.now();
        void read();
      }, Math.max(200, 1000 - (Date.now() - last)));
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [read, model]);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const shapes = useMemo(() => shapesOf(spans), [spans]);
  const segments = useMemo(() => segmentsOf(shapes, Math.max(200, width - LEFT_PX - 16) * zoom), [shapes, width, zoom]);
  const drawn = segments.length ? segments.at(-1)!.x + segments.at(-1)!.width + LEFT_PX + 16 : width;
  const height = HEAD_PX + LANES.length * LANE_PX;

  useEffect(() => {
    const target = canvas.current;
    const context = target?.getContext("2d");
    if (!target || !context || view !== "drawn") return;
    const scale = devicePixelRatio || 1;
    const total = Math.max(width, Math.min(drawn, 16_000));
    target.width = total * scale;
    target.height = height * scale;
    target.style.width = `${total}px`;
    target.style.height = `${height}px`;
    context.scale(scale, scale);
    hits.current = draw(context, shapes, segments, total, zone);
  }, [shapes, segments, width, drawn, height, zone, view, theme, lastSeq]);

  const select = (chosen: Span) => setQuery({ at: String(chosen.from_seq), sel: chosen.id && chosen.id.startsWith("sevt_") ? chosen.id : null, panel: null }, "push");
  const bins = spans.some((span) => span.kind === "bin");
  const total = shapes.length ? span(Math.max(...shapes.map((shape) => shape.to)) - Math.min(...shapes.map((shape) => shape.from))) : "";
  return (
    <section className="timeline" aria-label="Timeline">
      <div className="row bar">
        <h2>Timeline</h2>
        <span className="meta">{bins ? "in bins" : `${count(shapes.length)} spans`}{total && `, ${total}`}{segments.some((segment) => segment.idle) && ", idle time collapsed"}{paused && ", paused"}</span>
        <span className="spring" />
        {view === "drawn" && (
          <>
            <button type="button" className="button small" aria-label="Zoom out" disabled={zoom <= 1} onClick={() => setZoom(Math.max(1, zoom / 2))}>−</button>
            <button type="button" className="button small" aria-label="Zoom in" disabled={zoom >= 16} onClick={() => setZoom(Math.min(16, zoom * 2))}>+</button>
          </>
        )}
        <button type="button" className="chip" aria-pressed={view === "list"} onClick={() => setQuery({ timeline: view === "list" ? null : "list" })}>As a list</button>
      </div>
      {Boolean(error) && <Problem error={error} what="The timeline cannot be read" retry={() => void read()} />}
      <div className="timeline-body" ref={box} tabIndex={0} role="group" aria-label="Timeline content">
        {view === "drawn" ? (
          <canvas
            ref={canvas}
            role="img"
            aria-label={`Timeline with ${count(shapes.length)} spans; the same as a list is one button away`}
            onClick={(event) => {
              const place = event.currentTarget.getBoundingClientRect();
              const [x, y] = [event.clientX - place.left, event.clientY - place.top];
              const hit = hits.current.findLast((hit) => x >= hit.x - 2 && x <= hit.x + hit.w + 2 && y >= hit.y && y <= hit.y + hit.h);
              if (hit) select(hit.span);
            }}
          />
        ) : (
          <table className="rows">
            <thead><tr><th scope="col">Start</th><th scope="col">What</th><th scope="col">Took</th><th scope="col">Outcome</th></tr></thead>
            <tbody>
              {spans.slice(-MOST_ROWS).map((item, index) => (
                <tr key={`${item.id}${index}`}>
                  <td className="mono"><Clock at={item.start} /></td>
                  <td><button type="button" className="link" onClick={() => select(item)}>{item.kind} {inertLine(item.name, 80)}{item.attempt && item.attempt > 1 ? `, attempt ${item.attempt}` : ""}</button></td>
                  <td className="mono">{item.duration_ms != null ? span(item.duration_ms) : "open"}</td>
                  <td>{inertLine(item.outcome ?? "", 40).replaceAll("_", " ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
    </section>
  );
}

function shapesOf(spans: Span[]): Shape[] {
  const shapes: Shape[] = [];
  for (const item of spans) {
    const from = Date.parse(item.start);
    const open = !item.end;
    const to = item.end ? Date.parse(item.end) : serverNow();
    const name = inertLine(item.name, 60);
    const base = { from, to, open, span: item };
    switch (item.kind) {
      case "lease":
        shapes.push({ ...base, lane: 0, style: "solid", label: name });
        break;
      case "attempt":
        if (item.outcome === "failed") shapes.push({ ...base, lane: 4, style: "tick", label: `attempt ${item.attempt ?? 1} failed` });
        shapes.push({ ...base, lane: 1, style: "solid", label: name });
        break;
      case "tool":
        // Calls that only wait hold no compute.
        shapes.push({ ...base, lane: 2, style: /^(wait_for_callback|sleep|ask_user)$/.test(item.name) ? "wait" : "solid", label: name });
        break;
      case "wait":
        shapes.push({ ...base, lane: 3, style: /^(action|budget|stuck)/.test(item.name) ? "human" : "wait", label: name.replaceAll("_", " ") });
        break;
      case "bin":
        for (const [lane, kind] of ["lease", "attempt", "tool", "wait"].entries()) {
          const binned = item.spans?.[kind];
          if (binned?.count) shapes.push({ ...base, lane, style: "bin", label: count(binned.count) });
        }
        break;
      case "turn":
        break;
    }
  }
  return shapes;
}

/** Stretches of time with their place on the line; those that hold no compute are short. */
function segmentsOf(shapes: Shape[], width: number): Segment[] {
  if (shapes.length === 0) return [];
  const busy = shapes.filter((shape) => shape.lane < 2 || shape.style === "bin").sort((a, b) => a.from - b.from);
  const [start, end] = [Math.min(...shapes.map((shape) => shape.from)), Math.max(...shapes.map((shape) => shape.to))];
  const segments: Segment[] = [];
  let at = start;
  const push = (from: number, to: number, idle: boolean) => to > from && segments.push({ from, to, idle, x: 0, width: 0 });
  for (const shape of busy) {
    if (shape.from - at > IDLE_MS) {
      push(at, shape.from, true);
      at = shape.from;
    }
    if (shape.to > at) {
      const last = segments.at(-1);
      if (last && !last.idle && last.to === at) last.to = shape.to;
      else push(at, shape.to, false);
      at = shape.to;
    }
  }
  push(at, end, end - at > IDLE_MS);
  const gaps = segments.filter((segment) => segment.idle).length;
  const time = segments.filter((segment) => !segment.idle).reduce((sum, segment) => sum + segment.to - segment.from, 0) || 1;
  const free = Math.max(120, width - gaps * GAP_PX);
  let x = 0;
  for (const segment of segments) {
    segment.x = x;
    segment.width = segment.idle ? GAP_PX : Math.max(2, ((segment.to - segment.from) / time) * free);
    x += segment.width;
  }
  return segments;
}

function placeOf(segments: Segment[], at: number): number {
  const segment = segments.find((segment) => at <= segment.to) ?? segments.at(-1);
  if (!segment) return LEFT_PX;
  const share = Math.min(1, Math.max(0, (at - segment.from) / Math.max(1, segment.to - segment.from)));
  return LEFT_PX + segment.x + share * segment.width;
}

function draw(context: CanvasRenderingContext2D, shapes: Shape[], segments: Segment[], width: number, zone: "local" | "utc") {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const hits: { x: number; y: number; w: number; h: number; span: Span }[] = [];
  context.clearRect(0, 0, width, HEAD_PX + LANES.length * LANE_PX);
  context.font = `11px ${style.getPropertyValue("--sans")}`;
  context.textBaseline = "middle";
  LANES.forEach((name, lane) => {
    const y = HEAD_PX + lane * LANE_PX;
    context.fillStyle = color("--line");
    context.fillRect(0, y, width, 1);
    context.fillStyle = color("--text-3");
    context.fillText(name, 16, y + LANE_PX / 2);
  });
  let lastLabel = -Infinity;
  for (const segment of segments) {
    const x = LEFT_PX + segment.x;
    context.fillStyle = color("--text-3");
    if (!segment.idle && x - lastLabel > 70 && x < width - 60) {
      context.fillText(clock(new Date(segment.from).toISOString(), zone), x, HEAD_PX / 2);
      lastLabel = x;
    }
    if (segment.idle) {
      context.strokeStyle = color("--border");
      context.lineWidth = 1.5;
      context.beginPath();
      const middle = x + segment.width / 2;
      for (const shift of [-5, 5]) {
        const y = HEAD_PX + 4;
        context.moveTo(middle + shift, y);
        [[4, 5], [-4, 10], [4, 15], [0, 20]].forEach(([dx, dy]) => context.lineTo(middle + shift + dx!, y + dy!));
      }
      context.stroke();
      const label = span(segment.to - segment.from);
      context.fillText(label, middle - context.measureText(label).width / 2, HEAD_PX + LANE_PX * 1.5);
    }
  }
  const next = new Map<Shape, number>();
  for (const lane of LANES.keys()) {
    const own = shapes.filter((shape) => shape.lane === lane).sort((a, b) => a.from - b.from);
    own.forEach((shape, index) => own[index + 1] && next.set(shape, placeOf(segments, own[index + 1]!.from)));
  }
  for (const shape of shapes) {
    const [x1, x2] = [placeOf(segments, shape.from), placeOf(segments, shape.to)];
    const [y, w] = [HEAD_PX + shape.lane * LANE_PX + 6, Math.max(2, x2 - x1)];
    const h = LANE_PX - 12;
    const tone = { solid: shape.span.outcome === "failed" || shape.span.outcome === "lost" ? "--backing-off" : "--working", bin: "--working", wait: "--waiting", human: "--needs-you", tick: "--backing-off" }[shape.style];
    context.strokeStyle = context.fillStyle = color(tone);
    context.lineWidth = 2;
    context.setLineDash(shape.style === "human" ? [5, 4] : []);
    if (shape.style === "tick") context.fillRect(x2 - 1, y, 2, h);
    else if (shape.style === "wait" || shape.style === "human") context.strokeRect(x1 + 1, y + 1, Math.max(1, w - 2), h - 2);
    else context.fillRect(x1, y, w, h);
    context.setLineDash([]);
    hits.push({ x: x1, y, w, h, span: shape.span });
    const room = context.measureText(shape.label).width;
    const isFilled = shape.style === "solid" || shape.style === "bin";
    if (room + 8 < w) {
      context.fillStyle = color(isFilled ? "--on-accent" : tone);
      context.fillText(shape.label, x1 + 4, y + h / 2 + 1);
    } else if (!isFilled) {
      // Beside it, where nothing else of the lane is.
      if (x2 + room + 10 < Math.min(width, next.get(shape) ?? width)) context.fillText(shape.label, x2 + 5, y + h / 2 + 1);
    }
  }
  return hits;
}

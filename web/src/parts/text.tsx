// Text of others, made inert: no markup, no control characters, no overrides of the reading direction.
import { Fragment, useState, type ReactNode } from "react";
import { Button } from "react-aria-components";
import { plural } from "./format";

/** Escape sequences of terminals: colours, cursor moves, titles, links. */
// eslint-disable-next-line no-control-regex
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[@-Z\\-_])/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
/** Marks that change the order in which text is read, and those that are not seen at all. */
const HIDDEN = /[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

export function inert(value: string): string {
  return value
    .replace(/\r\n?/g, "\n")
    .replace(ANSI, "")
    .replace(CONTROL, "\ufffd")
    .replace(HIDDEN, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** One line of it, for titles. */
export function inertLine(value: string, most = 300): string {
  const line = inert(value).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most)}…` : line;
}

/** Longest text that is laid out without being asked for. */
const FOLD_AT = 16_000;

/** A long text shows its begin and its end. */
export function LongText({ value, className = "", as = "pre" }: { value: string; className?: string; as?: "pre" | "div" }) {
  const [whole, setWhole] = useState(false);
  const clean = inert(value);
  const Tag = as;
  if (whole || clean.length <= FOLD_AT) return <Tag className={`text ${className}`} dir="auto">{clean}</Tag>;
  const half = FOLD_AT / 4;
  return (
    <>
      <Tag className={`text ${className}`} dir="auto">{clean.slice(0, half)}</Tag>
      <Button className="fold" onPress={() => setWhole(true)}>
        {plural(clean.length - 2 * half, "character")} more — show all
      </Button>
      <Tag className={`text ${className}`} dir="auto">{clean.slice(-half)}</Tag>
    </>
  );
}

/** Markdown of a model as elements; whatever it does not know is plain text, so nothing can be injected. */
export function Markdown({ value }: { value: string }) {
  const clean = inert(value);
  if (clean.length > FOLD_AT) return <LongText value={value} as="div" className="prose" />;
  return <div className="prose" dir="auto">{blocksOf(clean)}</div>;
}

function blocksOf(source: string): ReactNode[] {
  const lines = source.split("\n");
  const out: ReactNode[] = [];
  let at = 0;
  const isBlock = (line: string) => /^(```|~~~|#{1,6} |\s*[-*+] |\s*\d+[.)] |> |\|)/.test(line);
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const key = at;
    const fence = /^(```|~~~)\s*([\w+-]*)/.exec(line);
    if (fence) {
      const body: string[] = [];
      at += 1;
      while (at < lines.length && !lines[at]!.startsWith(fence[1]!)) body.push(lines[at++]!);
      at += 1;
      out.push(<pre key={key} className="text code" tabIndex={0} aria-label={fence[2] ? `code, ${fence[2]}` : "code"}>{body.join("\n")}</pre>);
      continue;
    }
    const title = /^#{1,6} (.*)/.exec(line);
    if (title) {
      out.push(<p key={key} className="heading">{spans(title[1]!)}</p>);
      at += 1;
      continue;
    }
    const item = /^\s*([-*+]|\d+[.)]) /.exec(line);
    if (item) {
      const isOrdered = /\d/.test(item[1]!);
      const items: string[] = [];
      while (at < lines.length) {
        const next = /^\s*(?:[-*+]|\d+[.)]) (.*)/.exec(lines[at]!);
        if (next) items.push(next[1]!);
        else if (/^\s{2,}\S/.test(lines[at]!) && items.length > 0) items[items.length - 1] += `\n${lines[at]!.trim()}`;
        else break;
        at += 1;
      }
      const List = isOrdered ? "ol" : "ul";
      out.push(<List key={key}>{items.map((text, index) => <li key={index}>{spans(text)}</li>)}</List>);
      continue;
    }
    if (line.startsWith("|") || line.startsWith("> ")) {
      const start = line[0]!;
      const body: string[] = [];
      while (at < lines.length && lines[at]!.startsWith(start)) body.push(lines[at++]!);
      out.push(
        start === "|" ? (
          <pre key={key} className="text code" tabIndex={0} aria-label="table">{body.join("\n")}</pre>
        ) : (
          <blockquote key={key}>{spans(body.map((text) => text.slice(2)).join("\n"))}</blockquote>
        ),
      );
      continue;
    }
    if (line.trim() === "") {
      at += 1;
      continue;
    }
    const body: string[] = [];
    while (at < lines.length && lines[at]!.trim() !== "" && (body.length === 0 || !isBlock(lines[at]!))) body.push(lines[at++]!);
    out.push(<p key={key}>{spans(body.join("\n"))}</p>);
  }
  return out;
}

/** Code, strong, emphasis; links are shown with their target and open only when pressed, images never. */
function spans(source: string): ReactNode[] {
  const parts: ReactNode[] = [];
  const pattern = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\n]+)\*(?!\w)|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;
  let from = 0;
  for (const match of source.matchAll(pattern)) {
    if (match.index > from) parts.push(<Fragment key={from}>{source.slice(from, match.index)}</Fragment>);
    const key = match.index;
    if (match[1] !== undefined) parts.push(<code key={key}>{match[1]}</code>);
    else if (match[2] !== undefined) parts.push(<strong key={key}>{match[2]}</strong>);
    else if (match[3] !== undefined) parts.push(<em key={key}>{match[3]}</em>);
    else
      parts.push(
        <a key={key} href={match[5]} target="_blank" rel="noopener noreferrer nofollow">
          {match[4]} <span className="meta">({match[5]})</span>
        </a>,
      );
    from = match.index + match[0].length;
  }
  if (from < source.length) parts.push(<Fragment key={from}>{source.slice(from)}</Fragment>);
  return parts;
}

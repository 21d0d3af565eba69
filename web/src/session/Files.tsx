// The files of a session as they are now.
import { useEffect, useState } from "react";
import { Button } from "react-aria-components";
import { fetchRaw, sessionPath, type FileEntry, type Folder } from "../api/client";
import { Copy, Empty, Loading, Problem } from "../parts/parts";
import { useResource } from "../parts/resource";
import { LongText, inertLine } from "../parts/text";
import { plural, size } from "../parts/format";
import { setQuery, useAddress } from "../router";
import type { SessionModel } from "./model";

/** Most rows of a folder that are shown at a time. */
const ROWS = 500;
/** So much of a file is read at a time. */
const PIECE = 64 * 1024;
const IMAGES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };
/** Largest image that is read to be shown. */
const LARGEST_IMAGE = 8 * 1024 * 1024;

export function Files({ id, model }: { id: string; model: SessionModel }) {
  const { query } = useAddress();
  const folder = query.get("folder") ?? "";
  const path = query.get("path");
  const listing = useResource<Folder>(sessionPath(id, `/files?path=${encodeURIComponent(folder)}&limit=${ROWS}`));
  const [filter, setFilter] = useState("");
  const { reload } = listing;
  // Commands change files: what is shown is read again when rows came.
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = model.onRows(() => {
      clearTimeout(timer);
      timer = setTimeout(reload, 500);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [model, reload]);
  const rows = (listing.data?.data ?? []).filter((file) => file.name.toLowerCase().includes(filter.toLowerCase()));
  const parent = folder.includes("/") ? folder.slice(0, folder.lastIndexOf("/")) : "";
  const enter = (name: string) => setQuery({ folder: folder ? `${folder}/${name}` : name, path: null }, "push");
  return (
    <div className="files">
      <div className="stack file-list">
        <div className="row">
          <code className="brief">/{inertLine(folder)}</code>
          <span className="spring" />
          <input aria-label="Filter files" placeholder="Filter" value={filter} onChange={(event) => setFilter(event.target.value)} />
          <Button className="button small" onPress={reload}>Read again</Button>
        </div>
        {Boolean(listing.error) && <Problem error={listing.error} what="The folder cannot be read" retry={reload} />}
        {listing.loading && <Loading />}
        {listing.data && rows.length === 0 && <Empty title={filter ? "No file matches" : "No files here yet"} />}
        <ul>
          {folder !== "" && <li><button type="button" className="file" onClick={() => setQuery({ folder: parent || null, path: null }, "push")}>▴ ..</button></li>}
          {rows.map((file) => (
            <li key={file.name}>
              <button
                type="button"
                className="file"
                aria-current={path === file.path ? "true" : undefined}
                onClick={() => (file.type === "folder" ? enter(file.name) : setQuery({ path: file.path }, "push"))}
              >
                <span aria-hidden="true">{file.type === "folder" ? "▸" : file.type === "link" ? "↪" : " "}</span>
                <span className="name">{inertLine(file.name, 200)}</span>
                <span className="meta mono">{file.type === "file" ? size(file.size_bytes ?? 0) : file.type === "link" ? inertLine(file.target ?? "", 40) : ""}</span>
              </button>
            </li>
          ))}
        </ul>
        {listing.data?.is_cut && <p className="meta">Only the first {plural(ROWS, "entry").replace("entrys", "entries")} are listed.</p>}
      </div>
      {path !== null && <FileView key={path} id={id} path={path} file={rows.find((file) => file.path === path)} />}
    </div>
  );
}

function FileView({ id, path, file }: { id: string; path: string; file: FileEntry | undefined }) {
  const address = sessionPath(id, `/files/content?path=${encodeURIComponent(path)}`);
  const [pieces, setPieces] = useState<Uint8Array[]>([]);
  const [total, setTotal] = useState<number | null>(null);
  const [image, setImage] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const kind = IMAGES[path.split(".").pop()?.toLowerCase() ?? ""];
  const have = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const read = async (from: number) => {
    try {
      if (file?.size_bytes === 0) return setTotal(0);
      const response = await fetchRaw(address, { headers: { range: `bytes=${from}-${from + PIECE - 1}` } });
      const bytes = new Uint8Array(await response.arrayBuffer());
      const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
      setTotal(range ? Number(range[1]) : bytes.length);
      setPieces((pieces) => (from === 0 ? [bytes] : [...pieces, bytes]));
    } catch (error) {
      setError(error);
    }
  };
  useEffect(() => {
    setError(null);
    if (!kind || (file?.size_bytes ?? 0) > LARGEST_IMAGE) {
      void read(0);
      return;
    }
    let url = "";
    fetchRaw(address)
      .then((response) => response.blob())
      .then((blob) => {
        // Of a type that this page chose, never the one that the agent would like.
        url = URL.createObjectURL(new Blob([blob], { type: kind }));
        setImage(url);
        setTotal(blob.size);
      })
      .catch(setError);
    return () => URL.revokeObjectURL(url);
    // It is read again when it changed.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [address, file?.modified_at]);
  const download = async () => {
    try {
      const blob = await (await fetchRaw(address)).blob();
      const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
      const link = document.createElement("a");
      link.href = url;
      link.download = path.split("/").pop() ?? "file";
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    } catch (error) {
      setError(error);
    }
  };
  const joined = new Uint8Array(have);
  pieces.reduce((at, piece) => (joined.set(piece, at), at + piece.length), 0);
  const isText = !joined.subarray(0, 8000).includes(0);
  return (
    <div className="stack file-view">
      <div className="row">
        <code className="brief">{inertLine(path)}</code>
        <Copy value={path} what="path" />
        <span className="spring" />
        {total !== null && <span className="meta mono">{size(total)}</span>}
        <Button className="button small" onPress={() => void download()}>Download</Button>
      </div>
      {Boolean(error) && <Problem error={error} what="The file cannot be read" retry={() => void read(0)} />}
      {image && <img src={image} alt={inertLine(path, 100)} />}
      {!image && total === 0 && <p className="meta">The file is empty.</p>}
      {!image && have > 0 && (isText ? <LongText value={new TextDecoder().decode(joined)} className="code" /> : <pre className="text code" tabIndex={0} aria-label="content in hexadecimal">{hex(joined.subarray(0, 4096))}</pre>)}
      {!image && total !== null && have < total && isText && <Button className="button small" onPress={() => void read(have)}>Read on ({size(have)} of {size(total)})</Button>}
      {!image && !isText && <p className="meta">Not text; the first {size(Math.min(4096, have))} are shown.</p>}
    </div>
  );
}

function hex(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(48)} ${letters}`);
  }
  return lines.join("\n");
}

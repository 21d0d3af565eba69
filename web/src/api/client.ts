// Requests to the server. A request carries the page's half of the login; the cookie is the other one.
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Session = Schemas["Session"] & {
  usage?: { input_tokens?: number; output_tokens?: number; cost_usd?: number; has_unpriced?: boolean };
};
export type Explanation = Schemas["Explanation"];
export type Approval = Schemas["Approval"];
export type Condition = Schemas["Condition"];
export type Node = Schemas["Node"];
export type Span = Schemas["Span"];
export type Caller = Schemas["Caller"];
export type Folder = Schemas["Folder"];
export type FileEntry = Schemas["File"];
export type Phase = NonNullable<Session["phase"]>;
/** An event as it came; its fields depend on a type that may be newer than this page. */
export type WireEvent = Omit<Schemas["Event"], "type"> & { type: string; [field: string]: unknown };
export type Page<T> = { data: T[]; next_page?: string | null };

const PAGE_KEY = "tenure.page_key";

/** An answer that is no success, or none at all. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
    readonly requestId: string,
  ) {
    super(message);
  }
  get isLogin(): boolean {
    return this.status === 401;
  }
  get isAway(): boolean {
    return this.status === 0;
  }
}

export function pageKey(): string {
  try {
    return localStorage.getItem(PAGE_KEY) ?? "";
  } catch {
    return "";
  }
}

/** How far the server's clock is ahead of this one, in milliseconds: what is shown counts by the server's. */
let skew = 0;
export function serverNow(): number {
  return Date.now() + skew;
}

const signedOutListeners = new Set<() => void>();
export function onSignedOut(listener: () => void): () => void {
  signedOutListeners.add(listener);
  return () => signedOutListeners.delete(listener);
}

export function headers(): Record<string, string> {
  return { "x-tenure-page": pageKey() };
}

export async function fetchRaw(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: { ...headers(), ...init.headers }, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Failure(0, "server_unreachable", "The server does not answer.", "It may be starting again; this page tries again by itself.", "");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

async function failure(response: Response): Promise<Failure> {
  const id = response.headers.get("request-id") ?? "";
  let error: { code?: string; message?: string; hint?: string } = {};
  try {
    error = ((await response.json()) as { error?: typeof error }).error ?? {};
  } catch {
    // Not from our server, such as a proxy's page.
  }
  if (response.status === 401) signedOutListeners.forEach((listener) => listener());
  return new Failure(response.status, error.code ?? `http_${response.status}`, error.message ?? `The server answered ${response.status}.`, error.hint ?? "", id);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await fetchRaw(path, { signal: signal ?? null });
  return (await response.json()) as T;
}

/** A request that changes something; safe to repeat when its answer is lost. */
export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const init = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", "idempotency-key": key } };
  try {
    return (await (await fetchRaw(path, init)).json()) as T;
  } catch (error) {
    if (!(error instanceof Failure) || !error.isAway) throw error;
    await new Promise((done) => setTimeout(done, 500));
    return (await (await fetchRaw(path, init)).json()) as T;
  }
}

export async function signIn(given: { code: string } | { key: string }): Promise<void> {
  const response = await fetchRaw("/workbench/login", { method: "POST", body: JSON.stringify(given), headers: { "content-type": "application/json" } });
  const login = (await response.json()) as { page_key: string };
  localStorage.setItem(PAGE_KEY, login.page_key);
}

export async function signOut(): Promise<void> {
  await fetchRaw("/workbench/logout", { method: "POST", body: "{}" });
  localStorage.removeItem(PAGE_KEY);
}

export async function whoami(): Promise<Caller> {
  const asked = Date.now();
  const caller = await get<Caller>("/v1/whoami");
  const half = (Date.now() - asked) / 2;
  skew = Date.parse(caller.now) - (asked + half);
  // Below a second the two clocks agree as far as anybody sees.
  if (Math.abs(skew) < 1000) skew = 0;
  return caller;
}

export const sessionPath = (id: string, rest = ""): string => `/v1/sessions/${encodeURIComponent(id)}${rest}`;

/** A call that is open in a session. */
export type OpenCall = { id: string; name: string; state: string };
export const openCalls = (session: Session): OpenCall[] => (session.open_calls ?? []) as unknown as OpenCall[];

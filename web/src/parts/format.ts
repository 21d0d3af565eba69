// Numbers and times in words.

export function span(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (milliseconds < 1000 && milliseconds > 0) return `${Math.max(1, Math.round(milliseconds))} ms`;
  if (seconds < 60) return `${seconds}s`;
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return hours > 0 ? `${days}d ${hours}h` : `${days}d`;
  if (hours > 0) return minutes > 0 ? `${hours}h ${minutes}m` : `${hours}h`;
  return seconds % 60 > 0 ? `${minutes}m ${seconds % 60}s` : `${minutes}m`;
}

export function money(usd: number): string {
  return `$${usd !== 0 && Math.abs(usd) < 0.01 ? usd.toFixed(4) : usd.toFixed(2)}`;
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  for (const [limit, unit] of [[1e6, "kB"], [1e9, "MB"], [1e12, "GB"]] as const) {
    if (bytes < limit) return `${(bytes / (limit / 1000)).toFixed(1)} ${unit}`;
  }
  return `${(bytes / 1e12).toFixed(1)} TB`;
}

export const count = (value: number): string => value.toLocaleString("en-US");
export const plural = (value: number, word: string): string => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

export type Zone = "local" | "utc";
const two = (value: number) => String(value).padStart(2, "0");

export function clock(at: string, zone: Zone): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  return zone === "utc"
    ? `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`
    : `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function full(at: string, zone: Zone): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  if (zone === "utc") return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at, zone)} ${zoneName()}`;
}

export function zoneName(): string {
  const minutes = -new Date().getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const sign = minutes < 0 ? "−" : "+";
  const rest = Math.abs(minutes) % 60;
  return `UTC${sign}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${two(rest)}` : ""}`;
}

/** The end of an id, enough for people to tell things apart; the whole one is copied. */
export const tail = (id: string): string => (id.length > 12 ? `…${id.slice(-6)}` : id);

// Makes requests of what calls take.
import { invalid } from "./errors.js";
import type { Amount, BatchOp, Duration, EventOptions, Moment, ReadOptions } from "./types.js";

const least = -(2n ** 63n);
const most = 2n ** 63n - 1n;

/** amountOf returns an amount as text, which the server takes for an integer. */
export function amountOf(field: string, n: Amount): string {
  if (typeof n === "number" && !Number.isSafeInteger(n)) throw invalid(field, `${n} is no integer that a number holds exactly: use a bigint`);
  const v = BigInt(n);
  if (v < least || v > most) throw invalid(field, `${v} is not an integer of 64 bits`);
  return v.toString();
}

/** durationOf returns a length of time as text. */
export const durationOf = (d: Duration): string => (typeof d === "number" ? `${d}ms` : d);

/** momentOf returns a point in time as text. */
export function momentOf(field: string, m: Moment): string {
  if (typeof m === "string") return m;
  const d = new Date(m);
  if (Number.isNaN(d.getTime())) throw invalid(field, "it is no time");
  return d.toISOString();
}

/** segment returns a part of a path. */
export function segment(field: string, s: string): string {
  if (s === "." || s === "..") throw invalid(field, `${JSON.stringify(s)} can't be in the path of a URL, which fetch would change: use batch and getMany`);
  try {
    const escaped = encodeURIComponent(s);
    return escaped === "read" ? "%72ead" : escaped; // the name of a path beside reactions
  } catch (cause) {
    throw invalid(field, "it is not Unicode");
  }
}

/** eventOf returns the body of an add, without its key. */
export function eventOf(delta: Amount, o: EventOptions | BatchOp): Record<string, unknown> {
  const body: Record<string, unknown> = { delta: amountOf("delta", delta) };
  if (o.at !== undefined) body.at = momentOf("at", o.at);
  if (o.who !== undefined && o.who !== "") body.who = o.who;
  if (o.dims !== undefined) body.dims = o.dims;
  if (o.floor !== undefined) body.floor = amountOf("floor", o.floor);
  if (o.ceiling !== undefined) body.ceiling = amountOf("ceiling", o.ceiling);
  if (o.saturate !== undefined) body.saturate = o.saturate;
  if (o.ttl !== undefined) body.ttl = durationOf(o.ttl);
  return body;
}

/** readQuery returns the parameters of a read. */
export function readQuery(o: ReadOptions): Record<string, string | undefined> {
  return {
    read: o.exact ? "exact" : undefined,
    session: o.session,
    max_staleness: o.maxStaleness === undefined ? undefined : durationOf(o.maxStaleness),
    max_error: o.maxError === undefined ? undefined : amountOf("maxError", o.maxError),
    at: o.at === undefined ? undefined : momentOf("at", o.at),
  };
}

// Makes typed answers of what the server replies with int64=string.
import { problemError, QuipuError } from "./errors.js";
import type { AddedItems, AskedItems, BatchResult, Breakdown, Count, Decision, Estimate, Fate, Line, Point, Reaction, Receipt, Reservation, Series, Sketch, SketchItem, Stock, Sum, TopList, Uniques } from "./types.js";

/** Raw is an object of JSON. */
export type Raw = Record<string, unknown>;

const wrong = (name: string, want: string): never => {
  throw new QuipuError({ kind: "other", status: 200, detail: `the reply has no ${name} that is ${want}: is this a Quipu server?` });
};

export const raw = (v: unknown, name = "body"): Raw => (typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Raw) : wrong(name, "an object"));
export const list = (v: unknown, name: string): unknown[] => (Array.isArray(v) ? v : wrong(name, "an array"));
export const text = (r: Raw, name: string): string => (typeof r[name] === "string" ? (r[name] as string) : wrong(name, "a string"));
export const maybeText = (r: Raw, name: string): string | undefined => (r[name] === undefined ? undefined : text(r, name));
const truth = (r: Raw, name: string): boolean => (typeof r[name] === "boolean" ? (r[name] as boolean) : wrong(name, "true or false"));
const flag = (r: Raw, name: string): boolean => r[name] === true;
const float = (r: Raw, name: string): number => (typeof r[name] === "number" ? (r[name] as number) : wrong(name, "a number"));
const maybeFloat = (r: Raw, name: string): number | undefined => (r[name] === undefined ? undefined : float(r, name));
const integer = (v: unknown, name: string): bigint => (typeof v === "string" && /^-?\d+$/.test(v) ? BigInt(v) : wrong(name, "an integer in quotes"));
export const big = (r: Raw, name: string): bigint => integer(r[name], name);
const maybeBig = (r: Raw, name: string): bigint | undefined => (r[name] === undefined ? undefined : big(r, name));
const date = (r: Raw, name: string): Date => new Date(text(r, name));
const maybeDate = (r: Raw, name: string): Date | undefined => (r[name] === undefined ? undefined : date(r, name));
const texts = (r: Raw, name: string): Record<string, string> => {
  const out: Record<string, string> = {};
  for (const [k, v] of Object.entries(raw(r[name] ?? {}, name))) out[k] = String(v);
  return out;
};
export const strings = texts;

/** bigs returns integers by names that users have given. */
export const bigs = (v: unknown, name: string): Record<string, bigint> =>
  Object.fromEntries(Object.entries(raw(v, name)).map(([k, n]) => [k, integer(n, name)]));

export const receipt = (v: unknown): Receipt => {
  const r = raw(v);
  return {
    key: text(r, "key"), applied: maybeBig(r, "applied"), value: maybeBig(r, "value"), before: maybeBig(r, "before"), version: maybeBig(r, "version"),
    replayed: truth(r, "replayed"), late: flag(r, "late"), duplicate: flag(r, "duplicate"), durability: text(r, "durability"), session: text(r, "session"),
  };
};

export const batchResult = (v: unknown): BatchResult => {
  const r = raw(v);
  if (r.error === undefined) return { key: text(r, "key"), receipt: receipt(r) };
  const status = raw(r.error).status;
  const error = problemError(typeof status === "number" ? status : 0, r.error);
  return { key: text(r, "key"), error: error ?? wrong("error", "a problem") };
};

export const count = (v: unknown): Count => {
  const r = raw(v);
  return {
    key: text(r, "key"), value: big(r, "value"), lower: maybeBig(r, "lower"), upper: maybeBig(r, "upper"), exact: truth(r, "exact"),
    complete: truth(r, "complete"), exists: truth(r, "exists"), expiresAt: maybeDate(r, "expires_at"), asOf: date(r, "as_of"),
    staleness: Number(big(r, "staleness_ms")), source: text(r, "source"), shards: float(r, "shards"), version: maybeBig(r, "version"),
  };
};

export const sum = (v: unknown): Sum => {
  const r = raw(v);
  return {
    prefix: text(r, "prefix"), sum: big(r, "sum"), keys: big(r, "keys"), exact: truth(r, "exact"), complete: truth(r, "complete"),
    asOf: date(r, "as_of"), next: maybeText(r, "next"),
  };
};

export const fate = (v: unknown): Fate => {
  const r = raw(v);
  return {
    state: text(r, "state"), at: maybeDate(r, "at"), receipt: r.result === undefined ? undefined : receipt(r.result),
    choice: maybeText(r, "choice"), before: maybeText(r, "before"),
  };
};

const point = (v: unknown): Point => {
  const r = raw(v);
  return { from: date(r, "from"), to: date(r, "to"), value: big(r, "value"), rate: maybeFloat(r, "rate"), exact: truth(r, "exact"), complete: truth(r, "complete") };
};

export const series = (v: unknown): Series => {
  const r = raw(v);
  return {
    step: text(r, "step"), stepMs: Number(big(r, "step_ms")), points: list(r.points, "points").map(point), sum: big(r, "sum"), rate: maybeFloat(r, "rate"),
    exact: truth(r, "exact"), complete: truth(r, "complete"), completeFrom: maybeDate(r, "complete_from"), asOf: date(r, "as_of"),
  };
};

// values returns the value of a dimension of one name, or those of several.
const values = (r: Raw): string[] => (r.values === undefined ? [text(r, "value")] : list(r.values, "values").map(String));

export const breakdown = (v: unknown): Breakdown => {
  const r = raw(v);
  return {
    key: text(r, "key"), dimension: text(r, "dimension"),
    values: list(r.values, "values").map((one) => ({ values: values(raw(one)), count: big(raw(one), "count") })),
    other: big(r, "other"), sum: big(r, "sum"), outside: big(r, "outside"), exact: truth(r, "exact"), complete: truth(r, "complete"),
    completeFrom: maybeDate(r, "complete_from"), asOf: date(r, "as_of"),
  };
};

export const line = (v: unknown): Line => {
  const r = raw(v);
  return {
    position: text(r, "position"), kind: text(r, "kind"), at: date(r, "at"), recorded: date(r, "recorded"), delta: maybeBig(r, "delta"), value: maybeBig(r, "value"),
    token: maybeText(r, "token"), actor: maybeText(r, "actor"), erased: flag(r, "erased"), reason: maybeText(r, "reason"), source: maybeText(r, "source"),
    undoes: maybeText(r, "undoes"), undone: flag(r, "undone"), dims: texts(r, "dims"),
  };
};

const estimate = (v: unknown): Estimate => {
  const r = raw(v);
  return { count: big(r, "count"), lower: big(r, "lower"), upper: big(r, "upper"), standardError: float(r, "standard_error"), exact: truth(r, "exact") };
};

export const uniques = (v: unknown): Uniques => {
  const r = raw(v);
  const o = r.overlap === undefined ? undefined : raw(r.overlap);
  return {
    ...estimate(r), key: text(r, "key"), values: list(r.values ?? [], "values").map((one) => ({ ...estimate(one), values: values(raw(one)) })),
    other: r.other === undefined ? undefined : estimate(r.other),
    overlap: o && { with: text(o, "with"), only: estimate(o.only), others: estimate(o.others), both: estimate(o.both) },
    aligned: truth(r, "aligned"), complete: truth(r, "complete"), completeFrom: maybeDate(r, "complete_from"), asOf: date(r, "as_of"),
  };
};

const maybeTruth = (r: Raw, name: string): boolean | undefined => (r[name] === undefined ? undefined : truth(r, name));

const sketchItem = (v: unknown): SketchItem => {
  const r = raw(v);
  return {
    item: text(r, "item"), added: maybeTruth(r, "added"), found: maybeTruth(r, "found"), count: maybeBig(r, "count"), lower: maybeBig(r, "lower"),
    upper: maybeBig(r, "upper"), listed: maybeTruth(r, "listed"), expelled: maybeText(r, "expelled"),
  };
};

export const addedItems = (v: unknown): AddedItems => {
  const r = raw(v);
  return {
    key: text(r, "key"), kind: maybeText(r, "kind"), items: list(r.items, "items").map(sketchItem), confidence: maybeFloat(r, "confidence"),
    replayed: truth(r, "replayed"), durability: text(r, "durability"),
  };
};

export const askedItems = (v: unknown): AskedItems => {
  const r = raw(v);
  return {
    key: text(r, "key"), kind: text(r, "kind"), items: list(r.items, "items").map(sketchItem), exact: truth(r, "exact"), error: maybeFloat(r, "error"),
    confidence: maybeFloat(r, "confidence"), asOf: date(r, "as_of"),
  };
};

export const sketch = (v: unknown): Sketch => {
  const r = raw(v), s = raw(r.shape, "shape");
  return {
    key: text(r, "key"),
    shape: {
      kind: text(s, "kind"), capacity: maybeFloat(s, "capacity"), error: maybeFloat(s, "error"), growth: maybeFloat(s, "growth"), fixed: flag(s, "fixed"),
      width: maybeFloat(s, "width"), depth: maybeFloat(s, "depth"), conservative: flag(s, "conservative"), k: maybeFloat(s, "k"),
    },
    total: big(r, "total"), exact: truth(r, "exact"), bytes: float(r, "bytes"), error: maybeFloat(r, "error"), capacity: maybeFloat(r, "capacity"),
    full: maybeTruth(r, "full"), epsilon: maybeFloat(r, "epsilon"), confidence: maybeFloat(r, "confidence"),
    items: list(r.items ?? [], "items").map(sketchItem), rest: maybeBig(r, "rest"), uniques: r.uniques === undefined ? undefined : estimate(r.uniques),
    expiresAt: maybeDate(r, "expires_at"), asOf: date(r, "as_of"),
  };
};

const bounded = (v: unknown): { count: bigint; lower: bigint; upper: bigint } => {
  const r = raw(v);
  return { count: big(r, "count"), lower: big(r, "lower"), upper: big(r, "upper") };
};

export const topList = (v: unknown): TopList => {
  const r = raw(v);
  return {
    name: text(r, "name"), key: maybeText(r, "key"), by: text(r, "by"),
    items: list(r.items, "items").map((one) => ({ ...bounded(one), item: text(raw(one), "item"), rise: raw(one).rise === undefined ? undefined : bounded(raw(one).rise) })),
    exact: truth(r, "exact"), rest: big(r, "rest"), total: big(r, "total"), aligned: truth(r, "aligned"), complete: truth(r, "complete"),
    completeFrom: maybeDate(r, "complete_from"), asOf: date(r, "as_of"),
  };
};

export const decision = (v: unknown): Decision => {
  const r = raw(v);
  return {
    allowed: truth(r, "allowed"), policy: text(r, "policy"), limit: big(r, "limit"), remaining: big(r, "remaining"),
    retryAfter: Number(big(r, "retry_after_ms")), resetAfter: Number(big(r, "reset_after_ms")), source: text(r, "source"), replayed: flag(r, "replayed"),
  };
};

export const reaction = (v: unknown): Reaction => {
  const r = raw(v);
  return {
    key: text(r, "key"), user: text(r, "user"), choice: text(r, "choice"), before: text(r, "before"), changed: truth(r, "changed"),
    counts: r.counts === undefined ? undefined : bigs(r.counts, "counts"), version: maybeBig(r, "version"), replayed: truth(r, "replayed"),
    durability: text(r, "durability"), session: maybeText(r, "session"),
  };
};

export const stock = (r: Raw): Stock => ({
  value: big(r, "value"), reserved: big(r, "reserved"), available: big(r, "available"), open: big(r, "open"), exact: truth(r, "exact"),
});

export const reservation = (v: unknown): Reservation => {
  const r = raw(v);
  return {
    id: text(r, "id"), key: text(r, "key"), amount: big(r, "amount"), who: maybeText(r, "who"), state: text(r, "state"), committed: maybeBig(r, "committed"),
    expiresAt: maybeDate(r, "expires_at"), stock: r.reserved === undefined ? undefined : stock(r), replayed: flag(r, "replayed"), durability: maybeText(r, "durability"),
  };
};

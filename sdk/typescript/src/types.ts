// What calls take and answer. Amounts are bigint, because counters have 64 bits.

/** Amount is what a call takes for an integer. A number must be a safe integer. */
export type Amount = bigint | number;

/** Duration is a length of time: milliseconds, or text such as "30s" or "7d". */
export type Duration = number | string;

/** Moment is a point in time: a Date, milliseconds since 1970, or text as RFC 3339 has it. */
export type Moment = Date | number | string;

/** Durability is what an acknowledgement survives: power loss, the death of the process, or neither. */
export type Durability = "synced" | "written" | "memory" | (string & {});

/** WriteOptions are what every write takes. */
export interface WriteOptions {
  signal?: AbortSignal;
  timeout?: number;
  /** The name of the write; by default a new UUID of version 7. */
  token?: string;
  /** Whether the receipt is to have the value; true by default. Without it the server can combine writes. */
  value?: boolean;
  /** The version that the counter must be at, or 0n if it must not exist. */
  ifVersion?: Amount;
}

/** EventOptions are what an add takes besides. */
export interface EventOptions extends WriteOptions {
  at?: Moment;
  who?: string;
  dims?: Record<string, string>;
  floor?: Amount;
  ceiling?: Amount;
  /** Stop at the floor or the ceiling instead of refusing. */
  saturate?: boolean;
  ttl?: Duration;
}

/** Why says why a correction is made. It is written into the ledger. */
export interface Why {
  reason?: string;
  actor?: string;
}

/** A Receipt says what became of a write. */
export interface Receipt {
  key: string;
  /** The amount added. */
  applied: bigint | undefined;
  /** The counter after the write, and before it, if the write asked for them. */
  value: bigint | undefined;
  before: bigint | undefined;
  /** For `ifVersion`; undefined if a shard took the write. */
  version: bigint | undefined;
  /** This was a repeat, and this is the first result. */
  replayed: boolean;
  late: boolean;
  /** The counter counts each user once, and had counted this one. */
  duplicate: boolean;
  durability: Durability;
  /** For a read that must see this write. */
  session: string;
}

/** A BatchOp is one add of a batch. */
export interface BatchOp {
  key: string;
  delta?: Amount;
  /** The token of this operation; by default that of the batch and its place. */
  token?: string;
  at?: Moment;
  who?: string;
  dims?: Record<string, string>;
  floor?: Amount;
  ceiling?: Amount;
  saturate?: boolean;
  ttl?: Duration;
}

/** A BatchResult is a receipt, or the error of that operation alone. */
export type BatchResult = { key: string; receipt: Receipt; error?: undefined } | { key: string; receipt?: undefined; error: Error };

/** ReadOptions say what a read must be. The strictest counts. */
export interface ReadOptions {
  signal?: AbortSignal;
  timeout?: number;
  /** Count every write that was acknowledged before the read began. */
  exact?: boolean;
  /** Count the write whose receipt had this session. */
  session?: string;
  maxStaleness?: Duration;
  maxError?: Amount;
  /** What the counter was then, as far as its windows tell. */
  at?: Moment;
}

/** A Count is a counter as it was read, and what the answer is worth. */
export interface Count {
  key: string;
  value: bigint;
  /** Between these the exact value is proved to lie; undefined if nothing is proved. */
  lower: bigint | undefined;
  upper: bigint | undefined;
  exact: boolean;
  /** Every part was read. */
  complete: boolean;
  exists: boolean;
  expiresAt: Date | undefined;
  asOf: Date;
  /** How old the answer was when it was made, in milliseconds. */
  staleness: number;
  source: "store" | "rollup" | "recalled" | "replica" | (string & {});
  shards: number;
  /** For `ifVersion`; undefined if the value is made up of several cells. */
  version: bigint | undefined;
}

/** A Page is a part of a list. */
export interface Page<T> {
  items: T[];
  /** The cursor of the next page; undefined on the last. */
  next: string | undefined;
}

/** A Sum is what the counters with a prefix add up to. */
export interface Sum {
  prefix: string;
  sum: bigint;
  keys: bigint;
  exact: boolean;
  complete: boolean;
  asOf: Date;
  next: string | undefined;
}

/** A Fate is what became of the write of a token. */
export interface Fate {
  state: "unknown" | "applied" | "refused" | "settled" | "expired" | (string & {});
  at: Date | undefined;
  receipt: Receipt | undefined;
  /** Of a reaction: what was chosen, and what before. */
  choice: string | undefined;
  before: string | undefined;
}

/** Span is a range of time. Text may also be relative, such as "-7d". */
export interface Span {
  signal?: AbortSignal;
  timeout?: number;
  from?: Moment;
  to?: Moment;
}

/** A Point is what was counted in one step of a range. */
export interface Point {
  from: Date;
  to: Date;
  value: bigint;
  rate: number | undefined;
  exact: boolean;
  complete: boolean;
}

/** A Series is what was counted in a range of time. */
export interface Series {
  step: string;
  stepMs: number;
  points: Point[];
  sum: bigint;
  rate: number | undefined;
  exact: boolean;
  complete: boolean;
  completeFrom: Date | undefined;
  asOf: Date;
}

/** A Breakdown is what was counted for each value of a dimension. */
export interface Breakdown {
  key: string;
  dimension: string;
  /** Values of a dimension of one name have one element. */
  values: { values: string[]; count: bigint }[];
  other: bigint;
  sum: bigint;
  outside: bigint;
  exact: boolean;
  complete: boolean;
  completeFrom: Date | undefined;
  asOf: Date;
}

/** A Line is an entry of a ledger. */
export interface Line {
  position: string;
  kind: string;
  at: Date;
  recorded: Date;
  delta: bigint | undefined;
  value: bigint | undefined;
  token: string | undefined;
  actor: string | undefined;
  erased: boolean;
  reason: string | undefined;
  source: string | undefined;
  undoes: string | undefined;
  undone: boolean;
  dims: Record<string, string>;
}

/** An Estimate is how many different users there were. */
export interface Estimate {
  count: bigint;
  lower: bigint;
  upper: bigint;
  standardError: number;
  exact: boolean;
}

/** Uniques are how many different users a counter had. */
export interface Uniques extends Estimate {
  key: string;
  values: (Estimate & { values: string[] })[];
  other: Estimate | undefined;
  overlap: { with: string; only: Estimate; others: Estimate; both: Estimate } | undefined;
  aligned: boolean;
  complete: boolean;
  completeFrom: Date | undefined;
  asOf: Date;
}

/** A TopList is what came most often. */
export interface TopList {
  name: string;
  /** The counter whose list it is; undefined for that of all counters of a pattern. */
  key: string | undefined;
  by: string;
  items: { item: string; count: bigint; lower: bigint; upper: bigint; rise: { count: bigint; lower: bigint; upper: bigint } | undefined }[];
  exact: boolean;
  /** The most that an item may have that is not listed. */
  rest: bigint;
  total: bigint;
  aligned: boolean;
  complete: boolean;
  completeFrom: Date | undefined;
  asOf: Date;
}

/** A SketchShape says what a sketch is made for. */
export type SketchShape = FilterShape | FrequenciesShape | { kind: "top"; k: number };

/** A FilterShape is that of a filter, which tells whether an item was added. */
export interface FilterShape {
  kind: "filter";
  /** How many items it is made for. */
  capacity: number;
  /** Which part of the items that were never added it may find by mistake. The default is 0.01. */
  error?: number;
  /** How many times larger each further part is when it is full. The default is 2. */
  growth?: number;
  /** It does not grow, and refuses items that are new when it is full. */
  fixed?: boolean;
}

/** A FrequenciesShape is that of frequencies, which tell how often an item came. */
export interface FrequenciesShape {
  kind: "frequencies";
  /** They are too high by at most this part of the total. The default is 0.001. */
  epsilon?: number;
  /** With which probability. The default is 0.99. */
  confidence?: number;
  /** Counters in a row, instead of epsilon and confidence. */
  width?: number;
  /** Rows. */
  depth?: number;
  /** Closer to the truth for rare items; nothing can be taken away. */
  conservative?: boolean;
}

/** A SketchOptions is what a write to a sketch takes. */
export interface SketchOptions {
  signal?: AbortSignal;
  timeout?: number;
  /** The name of the write; by default a new UUID of version 7. */
  token?: string;
  /** The sketch ends so long after the call. */
  ttl?: Duration;
}

/** A SketchItem is what a sketch knows of an item, as far as that means something to its kind. */
export interface SketchItem {
  item: string;
  /** To a filter: it was not found before. */
  added: boolean | undefined;
  /** By a filter: false is certain. */
  found: boolean | undefined;
  /** The estimate: upper. */
  count: bigint | undefined;
  /** In a top list it always holds; for frequencies with the probability confidence. */
  lower: bigint | undefined;
  /** Never below the truth. */
  upper: bigint | undefined;
  /** It is among the first k of a top list. */
  listed: boolean | undefined;
  /** The item that this one has driven out of the first k. */
  expelled: string | undefined;
}

/** An AddedItems is what became of items that were added. */
export interface AddedItems {
  key: string;
  /** Undefined for a repeat, if the sketch has gone since. */
  kind: string | undefined;
  items: SketchItem[];
  confidence: number | undefined;
  /** A repeat: it has changed nothing, and items are as the sketch has them now. */
  replayed: boolean;
  durability: Durability;
}

/** An AskedItems is what a sketch knows of items. */
export interface AskedItems {
  key: string;
  kind: string;
  items: SketchItem[];
  /** All of it is certain. */
  exact: boolean;
  /** For a filter: which part of the items that were never added it finds by mistake now. */
  error: number | undefined;
  confidence: number | undefined;
  asOf: Date;
}

/** A Sketch is what is known of one as a whole. */
export interface Sketch {
  key: string;
  shape: { kind: string; capacity: number | undefined; error: number | undefined; growth: number | undefined; fixed: boolean; width: number | undefined; depth: number | undefined; conservative: boolean; k: number | undefined };
  /** The sum of all amounts; of a filter how many items were new, of uniques how many there were. */
  total: bigint;
  /** The total is exact, and of a top list all numbers are. */
  exact: boolean;
  bytes: number;
  /** For a filter: which part of the items that were never added it finds by mistake now. */
  error: number | undefined;
  /** For a filter: how many items there is room for in the parts that there are. */
  capacity: number | undefined;
  /** For a filter: some items that are new are refused. */
  full: boolean | undefined;
  /** For frequencies: they are too high by at most epsilon times the total, with the probability confidence. */
  epsilon: number | undefined;
  confidence: number | undefined;
  /** For a top list: the most frequent first. */
  items: SketchItem[];
  /** The most that may have been counted of an item that is not in items. */
  rest: bigint | undefined;
  uniques: Estimate | undefined;
  expiresAt: Date | undefined;
  asOf: Date;
}

/** A Limit is one that a call brings itself. */
export interface Limit {
  name?: string;
  algorithm?: string;
  rate: Amount;
  per: string;
  burst?: Amount;
  zone?: string;
}

/** A Decision is what a limit answers. */
export interface Decision {
  allowed: boolean;
  policy: string;
  limit: bigint;
  remaining: bigint;
  /** Milliseconds after which the same may be allowed; -1 if it never is. */
  retryAfter: number;
  resetAfter: number;
  source: string;
  replayed: boolean;
}

/** A Reaction is what became of what a user chose. */
export interface Reaction {
  key: string;
  user: string;
  choice: string;
  before: string;
  changed: boolean;
  /** How many users have each choice; undefined if the call did not ask for the value. */
  counts: Record<string, bigint> | undefined;
  version: bigint | undefined;
  replayed: boolean;
  durability: Durability;
  session: string | undefined;
}

/** A Stock is what a counter has that has reservations. */
export interface Stock {
  value: bigint;
  reserved: bigint;
  available: bigint;
  open: bigint;
  exact: boolean;
}

/** A Reservation is an amount that is held for a time. */
export interface Reservation {
  id: string;
  key: string;
  amount: bigint;
  who: string | undefined;
  state: "open" | "committed" | "released" | "expired" | (string & {});
  committed: bigint | undefined;
  expiresAt: Date | undefined;
  stock: Stock | undefined;
  replayed: boolean;
  durability: Durability | undefined;
}

/** Definitions are those of a namespace, as the server tells them. */
export interface Definitions {
  id: bigint;
  /** For `define`, which then replaces these and no others. */
  etag: string;
  definitions: Definition[];
}

/** A Definition says what is counted besides a total. Its members are those of the REST API. */
export type Definition = { pattern: string } & Record<string, unknown>;

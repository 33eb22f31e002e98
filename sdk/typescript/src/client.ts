import * as decode from "./decode.js";
import { amountOf, durationOf, eventOf, momentOf, readQuery, segment } from "./encode.js";
import { invalid, problemError } from "./errors.js";
import { newToken } from "./token.js";
import { type CallOptions, type Options, type Reply, type Request, Transport } from "./transport.js";
import type {
  AddedItems, Amount, AskedItems, BatchOp, BatchResult, Breakdown, Count, Decision, Definition, Definitions, Duration, EventOptions, Fate, Limit, Line, Moment, Page, Reaction,
  ReadOptions, Receipt, Reservation, Series, Sketch, SketchOptions, SketchShape, Span, Stock, Sum,
  TopList, Uniques, Why, WriteOptions,
} from "./types.js";
import { watch, type WatchOptions } from "./watch.js";
import { Writer, type WriterOptions } from "./writer.js";

// span returns the parameters of a range of time.
const span = (o: Span): Record<string, string | undefined> => ({
  from: o.from === undefined ? undefined : momentOf("from", o.from),
  to: o.to === undefined ? undefined : momentOf("to", o.to),
});

// lives returns how long a sketch is to live.
const lives = (o: { ttl?: Duration }): { ttl?: string } => (o.ttl === undefined ? {} : { ttl: durationOf(o.ttl) });

const numberOf = (n: number | undefined): string | undefined => (n === undefined ? undefined : String(n));

/**
 * Quipu calls a server over REST. Each write has a token by default, so a call that got
 * no answer is sent again until its time is over, and counts once. A client has no
 * connection of its own to close, and may be used by any number of callers.
 */
export class Quipu {
  readonly namespace: string;
  readonly #o: Options;
  readonly #transport: Transport;
  readonly #path: string;

  constructor(o: Options) {
    if (!/^https?:\/\//.test(o.url)) throw invalid("url", `want http://… or https://…, not ${JSON.stringify(o.url)}`);
    this.#o = o;
    this.namespace = o.namespace ?? "default";
    this.#path = `/api/v1/namespaces/${segment("namespace", this.namespace)}`;
    this.#transport = new Transport(o);
  }

  /** in returns a client for another namespace of the same server. */
  in(namespace: string): Quipu {
    return new Quipu({ ...this.#o, namespace });
  }

  #send(r: Request): Promise<Reply> {
    return this.#transport.do({ ...r, path: this.#path + r.path });
  }

  async #read(path: string, query: Request["query"], options?: CallOptions): Promise<unknown> {
    return (await this.#send({ method: "GET", path, query: query ?? {}, repeatable: true, reads: true, options })).body;
  }

  // write sends what changes something. It may be repeated if it has a token, or is
  // repeatable by itself.
  async #write(method: "POST" | "PUT" | "DELETE", path: string, body: unknown, o: WriteOptions, more: Partial<Request> & { untokened?: boolean } = {}): Promise<unknown> {
    const { untokened, ...rest } = more;
    const token = o.token ?? (untokened || this.#o.tokens === false ? undefined : newToken());
    const headers: Record<string, string> = {};
    if (token !== undefined && !untokened) headers["idempotency-key"] = quote(token);
    if (o.value === false) headers.prefer = "return=minimal";
    if (o.ifVersion !== undefined) {
      if (BigInt(o.ifVersion) === 0n) headers["if-none-match"] = "*";
      else headers["if-match"] = `"${BigInt(o.ifVersion)}"`;
    }
    const request: Request = { method, path, headers, repeatable: token !== undefined, token, options: o, ...rest };
    if (body !== undefined) request.body = JSON.stringify(body);
    return (await this.#send(request)).body;
  }

  /** add adds to a counter. */
  async add(key: string, delta: Amount = 1n, o: EventOptions = {}): Promise<Receipt> {
    return decode.receipt(await this.#write("POST", `/counters/${segment("key", key)}/increment`, eventOf(delta, o), o));
  }

  /** set makes a counter hold a value. */
  async set(key: string, value: Amount, o: WriteOptions & Why = {}): Promise<Receipt> {
    return decode.receipt(await this.#write("PUT", `/counters/${segment("key", key)}`, { value: amountOf("value", value), ...why(o) }, o));
  }

  /** reset makes a counter hold 0. The receipt tells what it held. */
  async reset(key: string, o: WriteOptions & Why = {}): Promise<Receipt> {
    return decode.receipt(await this.#write("POST", `/counters/${segment("key", key)}/reset`, why(o), o));
  }

  /** delete removes a counter. */
  async delete(key: string, o: WriteOptions & Why = {}): Promise<Receipt> {
    return decode.receipt(await this.#write("DELETE", `/counters/${segment("key", key)}`, undefined, o, { query: why(o) }));
  }

  /** adjust corrects a counter, and writes down why. */
  async adjust(key: string, delta: Amount, o: WriteOptions & Why & { at?: Moment; dims?: Record<string, string> }): Promise<Receipt> {
    const body: Record<string, unknown> = { delta: amountOf("delta", delta), ...why(o) };
    if (o.at !== undefined) body.at = momentOf("at", o.at);
    if (o.dims !== undefined) body.dims = o.dims;
    return decode.receipt(await this.#write("POST", `/counters/${segment("key", key)}/adjust`, body, o));
  }

  /** batch makes up to 10,000 adds. Each is decided by itself: it is no transaction. */
  async batch(ops: BatchOp[], o: Omit<WriteOptions, "ifVersion"> = {}): Promise<BatchResult[]> {
    const body = { ops: ops.map((op) => ({ key: op.key, ...(op.token !== undefined && { id: op.token }), ...eventOf(op.delta ?? 1n, op) })) };
    const reply = decode.raw(await this.#write("POST", "/batch", body, o));
    return decode.list(reply.results, "results").map(decode.batchResult);
  }

  /** get reads a counter. Without options the answer is what the counter's policy promises. */
  async get(key: string, o: ReadOptions = {}): Promise<Count> {
    return decode.count(await this.#read(`/counters/${segment("key", key)}`, readQuery(o), o));
  }

  /** getIfChanged reads a counter, unless it still has an ETag. */
  async getIfChanged(key: string, etag: string | undefined, o: ReadOptions = {}): Promise<{ etag: string; count: Count } | undefined> {
    const headers: Record<string, string> = etag === undefined ? {} : { "if-none-match": etag };
    const r = await this.#send({ method: "GET", path: `/counters/${segment("key", key)}`, query: readQuery(o), headers, repeatable: true, reads: true, options: o });
    return r.status === 304 ? undefined : { etag: r.headers.get("etag") ?? "", count: decode.count(r.body) };
  }

  /** getMany reads up to 10,000 counters, in the order of their keys. */
  async getMany(keys: string[], o: ReadOptions = {}): Promise<Count[]> {
    const r = await this.#send({ method: "POST", path: "/read", query: readQuery(o), body: JSON.stringify({ keys }), repeatable: true, reads: true, options: o });
    return decode.list(decode.raw(r.body).counters, "counters").map(decode.count);
  }

  /** list returns a page of the counters whose keys start with a prefix. */
  async list(prefix = "", o: CallOptions & { limit?: number; cursor?: string } = {}): Promise<Page<Count>> {
    const r = decode.raw(await this.#read("/counters", { prefix, limit: numberOf(o.limit), cursor: o.cursor }, o));
    return { items: decode.list(r.counters, "counters").map(decode.count), next: decode.maybeText(r, "next") };
  }

  /** listAll returns all of them, page by page. */
  async *listAll(prefix = "", o: CallOptions & { limit?: number } = {}): AsyncGenerator<Count, void, undefined> {
    for (let cursor: string | undefined; ; ) {
      const page = await this.list(prefix, { ...o, ...(cursor !== undefined && { cursor }) });
      yield* page.items;
      if ((cursor = page.next) === undefined) return;
    }
  }

  /** sum returns what the counters with a prefix add up to. If it is not complete, `next` is the cursor to go on from. */
  async sum(prefix: string, o: CallOptions & { cursor?: string } = {}): Promise<Sum> {
    return decode.sum(await this.#read("/sum", { prefix, cursor: o.cursor }, o));
  }

  /** lookup tells what is known of the write of a token. It changes nothing, and a write that is unknown may still arrive. */
  async lookup(key: string, token: string, o: CallOptions = {}): Promise<Fate> {
    return decode.fate(await this.#read(`/tokens/${segment("token", token)}`, { key }, o));
  }

  /** settle is final: if the write was not applied, it never will be. */
  async settle(key: string, token: string, o: CallOptions = {}): Promise<Fate> {
    return decode.fate(await this.#write("POST", `/tokens/${segment("token", token)}/settle`, undefined, o, { query: { key }, repeatable: true, untokened: true }));
  }

  /** undo takes back the write of a token, by its line in the ledger. */
  async undo(key: string, token: string, o: CallOptions & Why = {}): Promise<Receipt> {
    return decode.receipt(await this.#write("POST", `/tokens/${segment("token", token)}/undo`, why(o), o, { query: { key }, repeatable: true, untokened: true }));
  }

  /** range returns what was counted in a range of time, step by step. */
  async range(key: string, o: Span & { step?: string; zone?: string; rate?: boolean } = {}): Promise<Series> {
    return decode.series(await this.#read(`/counters/${segment("key", key)}/range`, { ...span(o), ...steps(o) }, o));
  }

  /** rangeOf returns the same of all counters with a prefix together. */
  async rangeOf(prefix: string, o: Span & { step?: string; zone?: string; rate?: boolean } = {}): Promise<Series> {
    return decode.series(await this.#read("/range", { prefix, ...span(o), ...steps(o) }, o));
  }

  /** by returns what was counted for each value of a dimension. */
  async by(key: string, dimension: string, o: Span & { top?: number } = {}): Promise<Breakdown> {
    return decode.breakdown(await this.#read(`/counters/${segment("key", key)}/by/${segment("dimension", dimension)}`, { ...span(o), top: numberOf(o.top) }, o));
  }

  /** ledger returns a page of the ledger of a counter, the newest line first. */
  async ledger(key: string, o: Span & { limit?: number; cursor?: string; actor?: string; token?: string } = {}): Promise<Page<Line> & { completeFrom: Date | undefined }> {
    const query = { ...span(o), limit: numberOf(o.limit), cursor: o.cursor, actor: o.actor, token: o.token };
    const r = decode.raw(await this.#read(`/counters/${segment("key", key)}/ledger`, query, o));
    const from = decode.maybeText(r, "complete_from");
    return { items: decode.list(r.entries, "entries").map(decode.line), next: decode.maybeText(r, "cursor"), completeFrom: from === undefined ? undefined : new Date(from) };
  }

  /** uniques returns how many different users a counter had. */
  async uniques(key: string, o: Span & { by?: string; top?: number; with?: string } = {}): Promise<Uniques> {
    return decode.uniques(await this.#read(`/uniques/${segment("key", key)}`, { ...span(o), by: o.by, top: numberOf(o.top), with: o.with }, o));
  }

  /** top returns what came most often: of one counter, or by the name of a list alone of all counters of its pattern. */
  async top(name: string, o: Span & { key?: string; k?: number; trend?: boolean } = {}): Promise<TopList> {
    const path = o.key === undefined ? `/tops/${segment("name", name)}` : `/counters/${segment("key", o.key)}/top/${segment("name", name)}`;
    return decode.topList(await this.#read(path, { ...span(o), k: numberOf(o.k), trend: o.trend === undefined ? undefined : String(o.trend) }, o));
  }

  /** addUniques takes users into those of a counter. It reports whether one may be new. */
  async addUniques(key: string, users: string[], o: CallOptions = {}): Promise<boolean> {
    const r = decode.raw(await this.#write("POST", `/uniques/${segment("key", key)}`, { items: users }, o, { repeatable: true, untokened: true }));
    return r.changed === true;
  }

  /** makeSketch makes an absent key a filter, frequencies or a top list. It returns false if the key holds such a one already. */
  async makeSketch(key: string, shape: SketchShape, o: CallOptions & { ttl?: Duration } = {}): Promise<boolean> {
    const r = decode.raw(await this.#write("PUT", `/sketches/${segment("key", key)}`, { ...shape, ...lives(o) }, o, { repeatable: true, untokened: true }));
    return r.made === true;
  }

  /** addItems adds items to the sketch that a key holds, all of them or none. */
  async addItems(key: string, items: (string | { item: string; n?: Amount })[], o: SketchOptions = {}): Promise<AddedItems> {
    const sent = items.map((one) => (typeof one === "string" ? one : { item: one.item, ...(one.n !== undefined && { n: amountOf("n", one.n) }) }));
    return decode.addedItems(await this.#write("POST", `/sketches/${segment("key", key)}/items`, { items: sent, ...lives(o) }, o));
  }

  /** askItems returns what the sketch that a key holds knows of items. */
  async askItems(key: string, items: string[], o: CallOptions = {}): Promise<AskedItems> {
    const path = `/sketches/${segment("key", key)}/query`;
    return decode.askedItems((await this.#send({ method: "POST", path, body: JSON.stringify({ items }), repeatable: true, reads: true, options: o })).body);
  }

  /** sketch returns what a key holds that is a sketch, and of a top list the first k items. */
  async sketch(key: string, o: CallOptions & { k?: number } = {}): Promise<Sketch> {
    return decode.sketch(await this.#read(`/sketches/${segment("key", key)}`, { k: numberOf(o.k) }, o));
  }

  /** mergeSketches makes a key what other sketches of one kind and shape are together. It returns true for a repeat, which changes nothing. */
  async mergeSketches(key: string, from: (string | { key: string; weight?: Amount })[], o: SketchOptions = {}): Promise<boolean> {
    const sent = from.map((one) => (typeof one === "string" ? one : { key: one.key, ...(one.weight !== undefined && { weight: amountOf("weight", one.weight) }) }));
    const r = decode.raw(await this.#write("POST", `/sketches/${segment("key", key)}/merge`, { from: sent, ...lives(o) }, o));
    return r.replayed === true;
  }

  /** allow asks the limits of a name whether a client may use a cost, and uses it. */
  async allow(name: string, o: CallOptions & { who?: string; cost?: Amount; limits?: Limit[]; away?: string | { then: string; servers: number }; burn?: boolean; dryRun?: boolean; token?: string } = {}): Promise<Decision> {
    const body: Record<string, unknown> = { cost: amountOf("cost", o.cost ?? 1n) };
    if (o.who !== undefined) body.who = o.who;
    if (o.limits !== undefined) {
      body.limits = o.limits.map((l) => ({ ...l, rate: amountOf("rate", l.rate), ...(l.burst !== undefined && { burst: amountOf("burst", l.burst) }) }));
    }
    if (o.away !== undefined) body.away = o.away;
    if (o.burn !== undefined) body.burn = o.burn;
    if (o.dryRun !== undefined) body.dry_run = o.dryRun;
    return decode.decision(await this.#write("POST", `/limits/${segment("name", name)}/allow`, body, o));
  }

  /** client tells what a client of a limit has left. */
  async client(name: string, who: string, o: CallOptions = {}): Promise<Decision> {
    return decode.decision(await this.#read(`/limits/${segment("name", name)}/clients/${segment("who", who)}`, {}, o));
  }

  /** resetLimit forgets what a client of a limit has used. */
  async resetLimit(name: string, who: string, o: CallOptions = {}): Promise<void> {
    await this.#write("DELETE", `/limits/${segment("name", name)}/clients/${segment("who", who)}`, undefined, o, { repeatable: true, untokened: true });
  }

  /** react makes a choice that of a user. */
  async react(key: string, user: string, choice: string, o: Omit<WriteOptions, "ifVersion"> = {}): Promise<Reaction> {
    return decode.reaction(await this.#write("PUT", `/reactions/${segment("key", key)}/${segment("user", user)}`, { choice }, o));
  }

  /** unreact takes back the choice of a user. */
  async unreact(key: string, user: string, o: Omit<WriteOptions, "ifVersion"> = {}): Promise<Reaction> {
    return decode.reaction(await this.#write("DELETE", `/reactions/${segment("key", key)}/${segment("user", user)}`, undefined, o));
  }

  /** choices returns what a user has chosen of each of up to 10,000 counters; "" is nothing. */
  async choices(user: string, keys: string[], o: CallOptions = {}): Promise<Record<string, string>> {
    const r = await this.#send({ method: "POST", path: "/reactions/read", body: JSON.stringify({ user, keys }), repeatable: true, reads: true, options: o });
    return decode.strings(decode.raw(r.body), "choices");
  }

  /** reactions returns how many users have each choice. */
  async reactions(key: string, o: CallOptions = {}): Promise<{ counts: Record<string, bigint>; users: bigint }> {
    const r = decode.raw(await this.#read(`/reactions/${segment("key", key)}`, {}, o));
    return { counts: decode.bigs(r.counts ?? {}, "counts"), users: decode.big(r, "users") };
  }

  /** members returns a page of the users of a counter and their choices. */
  async members(key: string, o: CallOptions & { choice?: string; limit?: number; cursor?: string } = {}): Promise<Page<{ user: string; choice: string }>> {
    const r = decode.raw(await this.#read(`/members/${segment("key", key)}`, { choice: o.choice, limit: numberOf(o.limit), cursor: o.cursor }, o));
    const one = (v: unknown) => ({ user: decode.text(decode.raw(v), "user"), choice: decode.text(decode.raw(v), "choice") });
    return { items: decode.list(r.members, "members").map(one), next: decode.maybeText(r, "next") };
  }

  /** reserve takes an amount out of a counter for a time. */
  async reserve(key: string, amount: Amount, ttl: Duration, o: Omit<WriteOptions, "ifVersion"> & { who?: string; floor?: Amount } = {}): Promise<Reservation> {
    const body: Record<string, unknown> = { amount: amountOf("amount", amount), ttl: durationOf(ttl) };
    if (o.who !== undefined) body.who = o.who;
    if (o.floor !== undefined) body.floor = amountOf("floor", o.floor);
    return decode.reservation(await this.#write("POST", `/counters/${segment("key", key)}/reserve`, body, o));
  }

  /** commit takes an amount of a reservation for good, or all of it, and gives back the rest. */
  commit(id: string, amount?: Amount, o: CallOptions & { value?: boolean } = {}): Promise<Reservation> {
    return this.#step(id, "commit", amount === undefined ? {} : { amount: amountOf("amount", amount) }, o);
  }

  /** release gives back all of a reservation. */
  release(id: string, o: CallOptions & { value?: boolean } = {}): Promise<Reservation> {
    return this.#step(id, "release", {}, o);
  }

  /** extend makes a reservation expire so long after now, unless it would later anyway. */
  extend(id: string, ttl: Duration, o: CallOptions & { value?: boolean } = {}): Promise<Reservation> {
    return this.#step(id, "extend", { ttl: durationOf(ttl) }, o);
  }

  // step makes a step in the life of a reservation. It happens once by itself.
  async #step(id: string, name: string, body: unknown, o: CallOptions & { value?: boolean }): Promise<Reservation> {
    return decode.reservation(await this.#write("POST", `/reservations/${segment("id", id)}/${name}`, body, o, { repeatable: true, untokened: true }));
  }

  /** reservation tells what has become of a reservation. */
  async reservation(id: string, o: CallOptions = {}): Promise<Reservation> {
    return decode.reservation(await this.#read(`/reservations/${segment("id", id)}`, {}, o));
  }

  /** reservations returns a page of the open reservations of a counter. */
  async reservations(key: string, o: CallOptions & { who?: string; limit?: number; cursor?: string } = {}): Promise<Page<Reservation> & { stock: Stock }> {
    const r = decode.raw(await this.#read("/reservations", { key, who: o.who, limit: numberOf(o.limit), cursor: o.cursor }, o));
    return { items: decode.list(r.reservations, "reservations").map(decode.reservation), next: decode.maybeText(r, "next"), stock: decode.stock(r) };
  }

  /** definitions returns what is counted in this namespace besides totals. */
  async definitions(o: CallOptions = {}): Promise<Definitions> {
    const r = await this.#send({ method: "GET", path: "/definitions", repeatable: true, reads: true, options: o });
    const body = decode.raw(r.body);
    return { id: decode.big(body, "id"), etag: r.headers.get("etag") ?? "", definitions: decode.list(body.definitions, "definitions") as Definition[] };
  }

  /** define replaces the definitions of this namespace: those with an ETag, or "*" for any. */
  async define(definitions: Definition[], o: CallOptions & { ifMatch: string; dryRun?: boolean }): Promise<{ id: bigint; changes: string[] }> {
    const body = JSON.stringify({ definitions }, (_, v) => (typeof v === "bigint" ? v.toString() : v));
    const request: Request = { method: "PUT", path: "/definitions", headers: { "if-match": o.ifMatch }, body, repeatable: o.ifMatch === "*" || o.dryRun === true, options: o };
    if (o.dryRun) request.query = { dry_run: "true" };
    const r = decode.raw((await this.#send(request)).body);
    return { id: decode.big(r, "id"), changes: decode.list(r.changes, "changes").map(String) };
  }

  /** watch yields a counter now, and whenever it has changed, until its signal ends it. */
  watch(key: string, o: WatchOptions = {}): AsyncGenerator<Count, void, undefined> {
    const path = `/counters/${segment("key", key)}/live`;
    return watch(
      {
        look: (etag) => this.getIfChanged(key, etag, o),
        open: (signal) => this.#transport.open({ path: this.#path + path, query: { ...readQuery(o), int64: "string" } }, signal),
        count: decode.count,
        problem: (data) => problemError(Number(decode.raw(data).status), data),
      },
      o,
    );
  }

  /** writer returns a Writer, which combines adds. Close it. */
  writer(o: WriterOptions = {}): Writer {
    return new Writer(this, o);
  }
}

// why returns who corrects, and why.
function why(o: Why): Record<string, string> {
  return { ...(o.reason !== undefined && { reason: o.reason }), ...(o.actor !== undefined && { actor: o.actor }) };
}

const steps = (o: { step?: string; zone?: string; rate?: boolean }): Record<string, string | undefined> => ({
  step: o.step, zone: o.zone, rate: o.rate === undefined ? undefined : String(o.rate),
});

// quote makes a string of RFC 9651 of a token. A header can't hold all characters.
function quote(token: string): string {
  if (!/^[\x20-\x7e]+$/.test(token)) throw invalid("token", "want printable ASCII");
  return `"${token.replace(/[\\"]/g, "\\$&")}"`;
}

// Errors of the server, as RFC 9457 tells them, and those of calls that got no answer.

/** Kind says what went wrong. It is the `kind` of the server's problem details. */
export type Kind =
  | "invalid" | "unauthorized" | "forbidden" | "not_found" | "method" | "timeout" | "overflow" | "bound" | "expired"
  | "settled" | "session_lost" | "ended" | "changed" | "unmet" | "too_large" | "misdirected" | "token" | "internal"
  | "corrupt" | "lost" | "read_only" | "unsupported" | "unavailable" | "closed" | "unknown" | "full" | "not_a_count"
  | "not_a_sketch" | "absent"
  | "other" | (string & {});

/** A Problem is what the server says of an error. */
export interface Problem {
  kind: Kind;
  status: number;
  detail: string;
  title?: string;
  /** The part of the request that is wrong. */
  field?: string;
  /** The byte of the body where it is. */
  offset?: number;
  /** The name of the request in the server's log. */
  requestId?: string;
}

/** QuipuError is thrown for every call that failed. Its kind says what happened. */
export class QuipuError extends Error {
  readonly kind: Kind;
  readonly status: number;
  readonly title: string | undefined;
  readonly field: string | undefined;
  readonly offset: number | undefined;
  readonly requestId: string | undefined;

  constructor(p: Problem, cause?: unknown) {
    super(p.detail, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.kind = p.kind;
    this.status = p.status;
    this.title = p.title;
    this.field = p.field;
    this.offset = p.offset;
    this.requestId = p.requestId;
  }
}

/** BoundError is thrown when a floor or a ceiling refused a write. Nothing changed. */
export class BoundError extends QuipuError {
  /** The counter as it was. */
  readonly value: bigint;
  /** The amount that was asked for. */
  readonly asked: bigint;
  readonly floor: bigint | undefined;
  readonly ceiling: bigint | undefined;
  /** What is available, if a reservation was refused. */
  readonly available: bigint | undefined;
  /** There was no room to remember the refusal: a repeat is decided anew. */
  readonly forgotten: boolean;

  constructor(p: Problem, b: { value: bigint; asked: bigint; floor?: bigint; ceiling?: bigint; available?: bigint; forgotten: boolean }) {
    super(p);
    this.value = b.value;
    this.asked = b.asked;
    this.floor = b.floor;
    this.ceiling = b.ceiling;
    this.available = b.available;
    this.forgotten = b.forgotten;
  }
}

/** UnavailableError is thrown when the server could not be reached in time, or took no call. Nothing changed. */
export class UnavailableError extends QuipuError {}

/**
 * UnknownError is thrown when a write may or may not have counted. Send the same again
 * under the same token, or ask `settle`.
 */
export class UnknownError extends QuipuError {
  /** The token of the write, if it had one. */
  readonly token: string | undefined;

  constructor(p: Problem, token: string | undefined, cause?: unknown) {
    super(p, cause);
    this.token = token;
  }
}

/** invalid returns the error of an argument that can't be sent. */
export function invalid(field: string, detail: string): QuipuError {
  return new QuipuError({ kind: "invalid", status: 0, detail: `${field}: ${detail}`, field });
}

/** problemError returns the error that a reply tells, or undefined if it is no problem of Quipu's. */
export function problemError(status: number, body: unknown): QuipuError | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  const b = body as Record<string, unknown>;
  if (typeof b.kind !== "string" || typeof b.detail !== "string") return undefined;
  const p: Problem = { kind: b.kind, status, detail: b.detail };
  if (typeof b.title === "string") p.title = b.title;
  if (typeof b.field === "string") p.field = b.field;
  if (typeof b.offset === "number") p.offset = b.offset;
  if (typeof b.request_id === "string") p.requestId = b.request_id;
  const number = (name: string) => (typeof b[name] === "string" ? BigInt(b[name]) : undefined);
  const value = number("value"), asked = number("asked");
  if (b.kind === "bound" && value !== undefined && asked !== undefined) {
    const floor = number("floor"), ceiling = number("ceiling"), available = number("available");
    return new BoundError(p, {
      value, asked, forgotten: b.forgotten === true,
      ...(floor !== undefined && { floor }), ...(ceiling !== undefined && { ceiling }), ...(available !== undefined && { available }),
    });
  }
  if (b.kind === "unavailable" || b.kind === "closed") return new UnavailableError(p);
  if (b.kind === "unknown") return new UnknownError(p, undefined);
  return new QuipuError(p);
}

export { Quipu } from "./client.js";
export { BoundError, type Kind, type Problem, QuipuError, UnavailableError, UnknownError } from "./errors.js";
export { newToken } from "./token.js";
export type { CallOptions, Options } from "./transport.js";
export type * from "./types.js";
export type { WatchOptions } from "./watch.js";
export { type AddedOptions, type Failure, Writer, type WriterOptions, type WriterStats } from "./writer.js";

// Reads server-sent events.

/** A Piece is one event. */
export interface Piece {
  event: string;
  data: string;
}

/** Pieces are those of a stream. */
export type Pieces = AsyncGenerator<Piece, void, undefined>;

/** How long an event may be. */
const pieceMax = 1 << 20;

/** pieces reads a body until it ends, and says each time that something came. */
export async function* pieces(body: ReadableStream<Uint8Array>, heard: () => void): Pieces {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let event = "";
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event that is not complete is none
      heard();
      rest += decoder.decode(value, { stream: true });
      if (rest.length > pieceMax) throw new Error("an event is too long");
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop()!;
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { event: event || "message", data: data.join("\n") };
          event = "";
          data = [];
          continue;
        }
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "event") event = text;
        else if (name === "data") data.push(text);
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

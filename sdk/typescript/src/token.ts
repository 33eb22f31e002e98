/**
 * newToken returns a UUID of version 7. It carries its age, so the server refuses it
 * for ever when it is old, instead of counting it again.
 */
export function newToken(now = Date.now()): string {
  const b = crypto.getRandomValues(new Uint8Array(16));
  for (let i = 5, ms = now; i >= 0; i--, ms = Math.floor(ms / 256)) b[i] = ms % 256;
  b[6] = (b[6]! & 0x0f) | 0x70;
  b[8] = (b[8]! & 0x3f) | 0x80;
  const hex = Array.from(b, (v) => v.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

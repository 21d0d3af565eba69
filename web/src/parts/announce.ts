// One polite line for screen readers; text that streams in is not read out piece by piece.
const LEAST_MS = 1000;
let last = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

export function announce(said: string): void {
  clearTimeout(timer);
  timer = setTimeout(() => {
    last = Date.now();
    const place = document.getElementById("announcer");
    if (place) place.textContent = said;
  }, Math.max(0, LEAST_MS - (Date.now() - last)));
}

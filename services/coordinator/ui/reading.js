// When a view reads what it shows. Why it exists: views that no stream feeds ask again every so often, and only while
// somebody can see them.

/** A view's `start`, `stop` and `failover`: `load` at once, every `everyMs`, and when another leader answers. */
export function readAgain(load, everyMs) {
  const look = () => { if (!document.hidden) load(); };
  let timer = 0;
  return {
    start() {
      look();
      timer = setInterval(look, everyMs);
    },
    stop: () => clearInterval(timer),
    failover: look,
  };
}

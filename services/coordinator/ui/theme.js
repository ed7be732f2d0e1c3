// Light, dark, or as the system says; and the resolved colours that canvases need.

const KEY = "conclave-theme";
const ORDER = ["auto", "light", "dark"];
const WORDS = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
const listeners = new Set();

export function onTheme(listener) {
  listeners.add(listener);
}

function apply(theme) {
  document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener();
}

/** Wires the switch; remembered across visits. */
export function startTheme(button) {
  let theme = localStorage.getItem(KEY) ?? "auto";
  if (!ORDER.includes(theme)) theme = "auto";
  const show = () => {
    button.setAttribute("aria-label", `${WORDS[theme]}. Change`);
    button.title = WORDS[theme];
  };
  apply(theme);
  show();
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem(KEY, theme);
    apply(theme);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(theme));
}

let probe = null;

/** A custom property as a colour that a canvas takes; `towards` another one by a share of `by`. */
export function colour(name, towards = name, by = 0) {
  if (!probe) {
    probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = by ? `color-mix(in srgb, var(${towards}) ${by * 100}%, var(${name}))` : `var(${name})`;
  return getComputedStyle(probe).color;
}

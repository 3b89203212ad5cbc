// The options of the overlay in its address. A value that is not valid counts as its default.

export const DEFAULTS = { size: 16, lines: 12, fade: 0, colour: "#fafafa", background: "transparent", authors: "all", names: "show" };
const COLOUR = /^#[0-9a-f]{6}([0-9a-f]{2})?$/i;
const RANGES = { size: [8, 96], lines: [1, 40], fade: [0, 600] };
const CHOICES = { authors: ["all", "people", "personas"], names: ["show", "hide"] };

export function readOptions(query) {
  const options = { ...DEFAULTS };
  for (const [name, [least, most]] of Object.entries(RANGES)) {
    const value = Number(query.get(name) ?? DEFAULTS[name]);
    if (Number.isFinite(value) && value >= least && value <= most) options[name] = value;
  }
  for (const name of ["colour", "background"]) if (COLOUR.test(query.get(name) ?? "")) options[name] = query.get(name);
  for (const [name, allowed] of Object.entries(CHOICES)) if (allowed.includes(query.get(name))) options[name] = query.get(name);
  return options;
}

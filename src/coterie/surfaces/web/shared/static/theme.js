// Runs before the first paint, so that the dark theme does not flash light.
for (const name of ["theme", "prose"]) {
  try {
    const chosen = localStorage.getItem(name);
    if (chosen) document.documentElement.dataset[name] = chosen;
  } catch {
    break; // storage is off: the system's choice holds
  }
}

// Runs before the first paint, so that nobody who chose dark sees a flash of light.
for (const name of ["theme", "prose"]) {
  try {
    const chosen = localStorage.getItem(name);
    if (chosen) document.documentElement.dataset[name] = chosen;
  } catch {
    break; // storage is off: the system's choice holds
  }
}

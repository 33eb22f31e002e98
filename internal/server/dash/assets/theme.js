// The theme is set before the page is painted, so this is no module.
(() => {
  try {
    const chosen = localStorage.getItem("quipu.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // A browser that keeps nothing has the theme of the system.
  }
})();

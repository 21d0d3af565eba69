// Before the first paint, so that nothing flashes.
(function () {
  var kept = null;
  try { kept = localStorage.getItem("tenure.theme"); } catch (_) { /* storage may be forbidden */ }
  var dark = kept === "light" || kept === "dark" ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();

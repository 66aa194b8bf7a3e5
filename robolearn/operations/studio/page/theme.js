// Chooses light or dark before anything is drawn: as the system says, or as was chosen here.
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;

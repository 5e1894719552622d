// The report's plots, drawn when the page is open, and the filter of its claims.
const specs = JSON.parse(document.getElementById('plots').textContent);
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const drawn = [...document.querySelectorAll('[data-plot]')].map((place) => vegaEmbed(place, specs[place.dataset.plot], {
  renderer: 'svg', actions: false, ast: true, tooltip: { theme: dark ? 'dark' : 'light' },
}));
Promise.all(drawn).then(
  () => document.documentElement.setAttribute('data-drawn', String(drawn.length)),
  (error) => console.error('a plot could not be drawn: ' + error),
);

const form = document.querySelector('.filter');
if (form) {
  const rows = [...document.querySelectorAll('.claims tbody tr')];
  const show = () => {
    const text = form.text.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = (!form.paper.value || row.dataset.paper === form.paper.value) &&
        (!form.holds.value || row.dataset.holds === form.holds.value) && row.textContent.toLowerCase().includes(text);
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector('output').textContent = `${shown} of ${rows.length}`;
  };
  form.addEventListener('input', show);
  form.addEventListener('submit', (event) => event.preventDefault());
}

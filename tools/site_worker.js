// Search without a server: browsers start no workers from files, so here a worker is a hidden frame.
if (location.protocol === 'file:') {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement('iframe');
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.ready = new Promise((resolve) => { frame.onload = resolve; });
      window.addEventListener('message', (event) => {
        if (event.source !== this.inside) return;
        const told = new MessageEvent('message', { data: event.data });
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      });
      this.inside.document.open();
      this.inside.document.write(`<script>
        postMessage = (data) => parent.dispatchEvent(new MessageEvent('message', { data, source: self }));
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {
          const script = document.createElement('script');
          script.src = url;
          script.onload = resolve;
          script.onerror = reject;
          document.body.appendChild(script);
        })), Promise.resolve());
      </${''}script><body><script src="${url}"></${''}script></body>`);
      this.inside.document.close();
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent('message', { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}

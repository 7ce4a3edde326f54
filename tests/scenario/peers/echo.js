// A server of node's http that says in X-Echo what it read of each request: method, target,
// number of body bytes and the first half of their SHA-1.
const [host, port] = process.argv[2].split(':');
const { createHash } = require('crypto');
const server = require('http').createServer((req, res) => {
  const hash = createHash('sha1');
  let size = 0;
  req.on('data', part => { hash.update(part); size += part.length; });
  req.on('end', () => {
    res.setHeader('X-Echo', `${req.method} ${req.url} ${size} ${hash.digest('hex').slice(0, 20)}`);
    res.setHeader('Content-Length', 0);
    res.end();
  });
});
server.listen(Number(port), host, () => console.log('ready'));

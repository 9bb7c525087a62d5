// Drives hive-driver for Node.js: PORT as argument, one JSON line as answer.
const hive = require('hive-driver');
const { TCLIService, TCLIService_types: types } = hive.thrift;
const utils = new hive.HiveUtils(types);

async function rows(session, sql) {
  const operation = await session.executeStatement(sql, { runAsync: true });
  await utils.waitUntilReady(operation, true, () => {});
  await utils.fetchAll(operation);
  const found = utils.getResult(operation).getValue();
  await operation.close();
  return found;
}

async function main(port) {
  const client = new hive.HiveClient(TCLIService, types);
  await client.connect(
    { host: '127.0.0.1', port },
    new hive.connections.TcpConnection(),
    new hive.auth.PlainTcpAuthentication({ username: 'node', password: 'x' }),
  );
  const session = await client.openSession({
    client_protocol: types.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10,
  });
  const answer = {
    values: await rows(session, "SELECT 1 AS i, 'x' AS s, array(1, 2) AS a, map('k', 'v') AS m, "
      + "named_struct('f', null) AS st, CAST(1.5 AS DECIMAL(5,2)) AS d, CAST(NULL AS INT) AS n"),
    many: (await rows(session, 'SELECT id FROM range(25000)')).length,
  };
  const tables = await session.getTables({ schemaName: 'information_schema' });
  await utils.waitUntilReady(tables, false, () => {});
  await utils.fetchAll(tables);
  answer.tables = utils.getResult(tables).getValue().map((row) => row.TABLE_NAME);
  answer.error = await rows(session, 'SELECT * FROM nope').then(() => null, (error) => error.response.errorMessage);
  await session.close();
  client.close();
  console.log(JSON.stringify(answer));
}

main(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});

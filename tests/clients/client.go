// Drives gohive: the port as argument, one JSON line as answer.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/beltran/gohive"
)

func rows(cursor *gohive.Cursor, sql string) []map[string]interface{} {
	ctx := context.Background()
	cursor.Exec(ctx, sql)
	if cursor.Err != nil {
		log.Fatal(cursor.Err)
	}
	found := []map[string]interface{}{}
	for cursor.HasMore(ctx) {
		row := cursor.RowMap(ctx)
		if cursor.Err != nil {
			log.Fatal(cursor.Err)
		}
		found = append(found, row)
	}
	return found
}

func main() {
	port, _ := strconv.Atoi(os.Args[1])
	configuration := gohive.NewConnectConfiguration()
	configuration.FetchSize = 1000
	configuration.Username = "gopher"
	configuration.Password = "x"
	connection, err := gohive.Connect("127.0.0.1", port, "NONE", configuration)
	if err != nil {
		log.Fatal(err)
	}
	cursor := connection.Cursor()
	answer := map[string]interface{}{
		"values": rows(cursor, "SELECT 1 AS i, 'x' AS s, array(1, 2) AS a, "+
			"CAST(1.5 AS DECIMAL(5,2)) AS d, CAST(NULL AS INT) AS n, true AS b"),
		"many": len(rows(cursor, "SELECT id FROM range(25000)")),
	}
	cursor.Exec(context.Background(), "CREATE SCHEMA IF NOT EXISTS gophers")
	answer["command"] = fmt.Sprint(cursor.Err)
	cursor.Exec(context.Background(), "SELECT * FROM nope")
	answer["error"] = fmt.Sprint(cursor.Err)
	cursor.Close()
	connection.Close()
	text, _ := json.Marshal(answer)
	fmt.Println(string(text))
}

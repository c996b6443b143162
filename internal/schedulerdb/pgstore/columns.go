package pgstore

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// columns are rows that a statement gets as one array for each column, all of the same
// length.
type columns []struct {
	name, of string // of: the PostgreSQL type of its values
	values   any
}

// rows are columns under the alias that the statement has for them.
type rows struct {
	alias string
	columns
}

// queue adds a statement to a batch, with its rows in the place of {alias}.
func queue(b *pgx.Batch, sql string, sources ...rows) {
	var args []any
	for _, source := range sources {
		var arrays, names []string
		for _, c := range source.columns {
			args = append(args, c.values)
			arrays = append(arrays, fmt.Sprintf("$%d::%s[]", len(args), c.of))
			names = append(names, c.name)
		}
		from := fmt.Sprintf("unnest(%s) AS %s (%s)", strings.Join(arrays, ", "), source.alias, strings.Join(names, ", "))
		sql = strings.Replace(sql, "{"+source.alias+"}", from, 1)
	}
	b.Queue(sql, args...)
}

// column makes one array of a field of each row.
func column[R, V any](rows []R, value func(R) V) []V {
	values := make([]V, len(rows))
	for i, row := range rows {
		values[i] = value(row)
	}
	return values
}

package oracle

import (
	"encoding/json"
	"fmt"
)

// Interval is a range of indexes, the first and the last.
type Interval [2]int64

// UnmarshalJSON reads [first, last].
func (i *Interval) UnmarshalJSON(data []byte) error {
	var list []int64
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) != len(i) {
		return fmt.Errorf("an interval has a first and a last index, not %s", data)
	}
	*i = Interval(list)
	return nil
}

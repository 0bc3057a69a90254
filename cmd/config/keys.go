package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Field is one option under the name that it has everywhere: as a flag, as a key
// of a file, in a --vm list.
type Field struct {
	Key string
	Ptr any // where its value goes: *bool, *string, *int, *int64 or *[]string
}

// Fields lists the options of o, an *Options or *VsockOptions, in their order.
func Fields(o any) []Field {
	var list []Field
	var add func(v reflect.Value)
	add = func(v reflect.Value) {
		for i := range v.NumField() {
			if key := v.Type().Field(i).Tag.Get("key"); key != "" {
				list = append(list, Field{key, v.Field(i).Addr().Interface()})
			} else if v.Field(i).Kind() == reflect.Struct {
				add(v.Field(i))
			}
		}
	}
	add(reflect.ValueOf(o).Elem())
	return list
}

// Set reads text as the field's value; a list grows by it.
func (f Field) Set(text string) (err error) {
	switch p := f.Ptr.(type) {
	case *string:
		*p = text
	case *[]string:
		*p = append(*p, text)
	case *bool:
		if *p, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("write true or false")
		}
	case *int:
		if *p, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("write a whole number")
		}
	case *int64:
		if *p, err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("write a whole number")
		}
	}
	return nil
}

// aliases are second names of keys, as the flags have them.
var aliases = map[string]string{"socket": "socket-path"}

// find returns the field of a key. An error says which key was meant, or which
// there are.
func find(list []Field, key string) (Field, error) {
	name := key
	if a, ok := aliases[key]; ok {
		name = a
	}
	if i := slices.IndexFunc(list, func(f Field) bool { return f.Key == name }); i >= 0 {
		return list[i], nil
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Key)
	}
	return Field{}, unknownKey(key, names)
}

func unknownKey(key string, known []string) error {
	if near := Nearest(key, known); near != "" {
		return fmt.Errorf("there is no key %q: did you mean %q?", key, near)
	}
	return fmt.Errorf("there is no key %q: the keys here are %s", key, strings.Join(known, ", "))
}

// Nearest returns the known name that differs from s least, "" if none is near:
// a third of the letters may differ, or one name may begin with the other.
func Nearest(s string, known []string) string {
	best, least := "", len(s)/3+1
	for _, k := range known {
		d := distance(s, k)
		if len(s) >= 2 && (strings.HasPrefix(k, s) || strings.HasPrefix(s, k)) {
			d = 0
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is Levenshtein's: insertions, deletions and changes of one byte.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

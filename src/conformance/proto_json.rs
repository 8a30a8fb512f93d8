//! Protobuf's `Struct` and JSON, in both directions.
//!
//! Decides nothing: a number is a double in both, anything that is not a number of JSON becomes null.

use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as Proto, value::Kind};
use serde_json::{Map, Value};

pub(super) fn to_struct(object: &Map<String, Value>) -> Struct {
    Struct { fields: object.iter().map(|(key, value)| (key.clone(), to_proto(value))).collect() }
}

fn to_proto(value: &Value) -> Proto {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(truth) => Kind::BoolValue(*truth),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(to_proto).collect() })
        }
        Value::Object(object) => Kind::StructValue(to_struct(object)),
    };
    Proto { kind: Some(kind) }
}

pub(super) fn from_struct(fields: &Struct) -> Value {
    // Protobuf's map has no order; names are sorted so that equal answers read equal.
    let mut entries: Vec<_> = fields.fields.iter().collect();
    entries.sort_by_key(|(key, _)| key.as_str());
    Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), from(value))).collect())
}

fn from(value: &Proto) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(*truth),
        Some(Kind::NumberValue(number)) => {
            serde_json::Number::from_f64(*number).map_or(Value::Null, Value::Number)
        }
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::ListValue(list)) => Value::Array(list.values.iter().map(from).collect()),
        Some(Kind::StructValue(fields)) => from_struct(fields),
    }
}

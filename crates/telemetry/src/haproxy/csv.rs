//! The table that `show stat` answers.

use super::statistics::{Responses, Row, RowKind};
use std::collections::HashMap;

/// Reads the table: a header that begins with `# pxname,` and one row a line.
pub(super) fn rows(table: &str) -> Result<Vec<Row>, String> {
    let mut lines = table.lines();
    let header = lines
        .next()
        .and_then(|line| line.strip_prefix("# "))
        .unwrap_or("");
    let columns: HashMap<&str, usize> = header.split(',').zip(0..).collect();
    for needed in ["pxname", "svname", "type", "scur", "stot", "status"] {
        if !columns.contains_key(needed) {
            return Err(format!("its header has no column {needed:?}"));
        }
    }
    let mut rows = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let fields = fields(line);
        let text = |name: &str| {
            columns
                .get(name)
                .and_then(|&index| fields.get(index))
                .map_or("", String::as_str)
        };
        let number = |name: &str| text(name).parse::<u64>().ok();
        let kind = match text("type") {
            "0" => RowKind::Frontend,
            "1" => RowKind::Backend,
            "2" => RowKind::Server,
            "3" => RowKind::Listener,
            other => return Err(format!("a row is of the unknown type {other:?}: {line:.80}")),
        };
        // The classes are empty for a proxy in `mode tcp`.
        let responses = number("hrsp_2xx").map(|_| Responses {
            by_class: ["hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx"]
                .map(|name| number(name).unwrap_or(0)),
            other: number("hrsp_other").unwrap_or(0),
        });
        rows.push(Row {
            proxy: text("pxname").into(),
            name: text("svname").into(),
            kind,
            status: text("status").into(),
            weight: number("weight"),
            queued: number("qcur").unwrap_or(0),
            sessions: number("scur").unwrap_or(0),
            sessions_total: number("stot").unwrap_or(0),
            requests_total: number("req_tot"),
            responses,
            total_time_ms: number("ttime"),
        });
    }
    Ok(rows)
}

/// The fields of one line; a field may stand in double quotes, in which two of them mean one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = Vec::with_capacity(100);
    let mut field = String::new();
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quoted_fields_keep_their_commas() {
        assert_eq!(fields(r#"a,"b,""c""",,d"#), ["a", "b,\"c\"", "", "d"]);
    }

    #[test]
    fn columns_are_found_by_name() {
        let table = "# pxname,svname,qcur,scur,stot,status,weight,type,hrsp_1xx,hrsp_2xx,hrsp_other,req_tot,new\n\
                     in,FRONTEND,,3,20,OPEN,,0,0,17,2,19,x\n\
                     app,s1,4,5,6,DOWN 1/2,1,2,0,5,,,\n";
        let rows = rows(table).unwrap();
        assert_eq!(rows[0].requests_total, Some(19));
        assert_eq!(rows[0].responses.unwrap().total(), 19);
        assert_eq!(
            (rows[1].queued, rows[1].sessions, rows[1].sessions_total),
            (4, 5, 6)
        );
        assert_eq!(rows[1].kind, RowKind::Server);
        assert!(!rows[1].healthy());
        assert!(super::rows("# pxname,svname\n").unwrap_err().contains("type"));
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(table in "[ -~\n]{0,200}") {
            let _ = rows(&table);
            let _ = rows(&format!("# pxname,svname,type,scur,stot,status\n{table}"));
        }
    }
}

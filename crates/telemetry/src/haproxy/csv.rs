//! The table that `show stat` answers.

use super::statistics::{Responses, Row, RowKind};

/// Reads the table: a header that begins with `# pxname,` and one row a line.
pub(super) fn rows(table: &str) -> Result<Vec<Row>, String> {
    // After an empty line comes the answer to something else.
    let table = table.split("\n\n").next().unwrap_or_default();
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(table.strip_prefix("# ").unwrap_or_default().as_bytes());
    let header = reader.headers().map_err(|error| error.to_string())?.clone();
    for needed in ["pxname", "svname", "type", "scur", "stot", "status"] {
        if !header.iter().any(|name| name == needed) {
            return Err(format!("its header has no column {needed:?}"));
        }
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let text = |name: &str| {
            header
                .iter()
                .zip(&record)
                .find(|(column, _)| *column == name)
                .map_or("", |(_, text)| text)
        };
        let number = |name: &str| text(name).parse::<u64>().ok();
        let kind = match text("type") {
            "0" => RowKind::Frontend,
            "1" => RowKind::Backend,
            "2" => RowKind::Server,
            "3" => RowKind::Listener,
            other => {
                let row = record.iter().collect::<Vec<_>>().join(",");
                return Err(format!("a row is of the unknown type {other:?}: {row:.80}"));
            }
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
            sessions: number("scur").unwrap_or(0),
            sessions_total: number("stot").unwrap_or(0),
            requests_total: number("req_tot"),
            responses,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_are_found_by_name() {
        let table = "# pxname,svname,qcur,scur,stot,status,weight,type,hrsp_1xx,hrsp_2xx,hrsp_other,req_tot,new\n\
                     in,FRONTEND,,3,20,OPEN,,0,0,17,2,19,x\n\
                     app,s1,4,5,6,DOWN 1/2,1,2,0,5,,,\n\
                     app,s2,,,,\"a,\"\"b\"\"\",,2\n";
        let rows = rows(table).unwrap();
        assert_eq!(rows[0].requests_total, Some(19));
        assert_eq!(rows[0].responses.unwrap().total(), 19);
        assert_eq!((rows[1].sessions, rows[1].sessions_total), (5, 6));
        assert_eq!(rows[1].kind, RowKind::Server);
        assert!(!rows[1].healthy());
        assert_eq!((rows[2].status.as_str(), rows[2].sessions), ("a,\"b\"", 0));
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
